#!/bin/bash
# What a container of a job runs. Spark starts an executor with the argument `executor`, and in cluster
# mode the driver with `driver` and the arguments of spark-submit; it describes them in environment
# variables. Anything else is a command, which runs as it is.
set -e

if [ "$1" = driver ]; then
    shift
    set -- "$SPARK_HOME/bin/spark-submit" --deploy-mode client \
        --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" "$@"
elif [ "$1" = executor ]; then
    # spark.executor.extraJavaOptions and others: SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, ...
    options=()
    for ((i = 0; ; i++)); do
        name=SPARK_JAVA_OPT_$i
        [ -v "$name" ] || break
        options+=("${!name}")
    done
    # SPARK_CLASSPATH: spark.executor.extraClassPath
    set -- "$JAVA_HOME/bin/java" "${options[@]}" \
        "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "${SPARK_CONF_DIR:-$SPARK_HOME/conf}:$SPARK_CLASSPATH:$SPARK_HOME/jars/*" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" \
        --executor-id "$SPARK_EXECUTOR_ID" \
        --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" \
        --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
        --podName "$SPARK_EXECUTOR_POD_NAME"
fi
exec tini -s -- "$@"
