"""Counts words from one topic of Kafka into another, exactly once.

``make services`` starts a broker and prints its address; then:

    python examples/kafka_word_count.py 127.0.0.1:19092

writes 3000 lines to a new topic, counts their words in a job that reads it, and reads what the job
has written as any consumer would that takes only what was committed:

    gannet: 1000
    kelp: 3000
    limpet: 2000
    read 3000 lines; the group 'word-count' has committed 3000 of 3000
"""

import argparse
import uuid
from collections import Counter
from collections.abc import Iterator

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast.common import SimpleStringSchema, WatermarkStrategy
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)

GROUP = "word-count"
LINES = ["kelp limpet", "kelp limpet", "kelp gannet"] * 1000
PARTITIONS = 3


def count_words(servers: str, lines: str, counts: str) -> None:
    """Read a topic to its present end, and write the counts of its words to another."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2).enable_checkpointing(1000)
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(servers)
        .set_topics(lines)
        .set_group_id(GROUP)
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers(servers)
        .set_record_serializer(
            KafkaRecordSerializationSchema.builder()
            .set_topic(counts)
            .set_value_serialization_schema(SimpleStringSchema())
            .build()
        )
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix(counts)
        .build()
    )
    (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "lines")
        .flat_map(lambda line: [(word, 1) for word in line.split()])
        .key_by(lambda pair: pair[0])
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
        .map(lambda pair: f"{pair[0]} {pair[1]}")
        .sink_to(sink)
    )
    env.execute("word count")


def make_topics(servers: str) -> tuple[str, str]:
    """A topic with lines in it, and one for the counts."""
    token = uuid.uuid4().hex[:8]
    names = f"lines-{token}", f"counts-{token}"
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]).values():
        made.result()
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for line in LINES:
        producer.produce(names[0], line)
    producer.flush()
    return names


def committed(servers: str, topic: str) -> int:
    """How many records the group says that it has read."""
    admin = AdminClient({"bootstrap.servers": servers})
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP, places)])
    return sum(place.offset for place in asked[GROUP].result().topic_partitions)


def written(servers: str, topic: str) -> Iterator[str]:
    """What was committed to a topic so far."""
    settings = {"bootstrap.servers": servers, "group.id": f"{topic}-reader"}
    settings |= {"isolation.level": "read_committed", "enable.partition.eof": "true"}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    ended = 0
    while ended < PARTITIONS:
        message = consumer.poll(1)
        if message is not None and message.error():
            ended += 1
        elif message is not None:
            yield (message.value() or b"").decode()
    consumer.close()


def main(servers: str) -> None:
    """Run the job and look at what came of it."""
    lines, counts = make_topics(servers)
    count_words(servers, lines, counts)
    results = [(word, int(count)) for word, count in map(str.split, written(servers, counts))]
    expected = Counter(word for line in LINES for word in line.split())
    # a word's count was written each time that it grew: 1, 2, 3, and so on, each once
    if sorted(results) != sorted((w, n + 1) for w, count in expected.items() for n in range(count)):
        raise SystemExit(f"{len(results)} counts were written, and not each once")
    for word, count in sorted(expected.items()):
        print(f"{word}: {count}")
    done = committed(servers, lines)
    print(f"read {len(LINES)} lines; the group '{GROUP}' has committed {done} of {len(LINES)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Count words from Kafka to Kafka.")
    parser.add_argument("servers", help="host:port of a broker; `make services` starts one")
    main(parser.parse_args().servers)
