"""An S3 server that checks credentials: ``python -m tests.guarded_store PORT``.

moto checks signatures and policies when it is told to. The server prints, as JSON, the keys of a
user who may do anything with S3, and of one who may only read.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import boto3
from moto import settings
from moto.server import ThreadedMotoServer

BUCKET = "guarded"


def main(port: int) -> None:
    """Serve until the end of the process."""
    # NB: counted down by requests that nobody checks, which is too little for what follows
    settings.INITIAL_NO_AUTH_ACTION_COUNT = float("inf")  # type: ignore[assignment]
    server = ThreadedMotoServer("127.0.0.1", port, verbose=False)
    server.start()
    address = {
        "endpoint_url": f"http://127.0.0.1:{port}",
        "region_name": "us-east-1",
        "aws_access_key_id": "root",
        "aws_secret_access_key": "root",
    }
    boto3.client("s3", **address).create_bucket(Bucket=BUCKET)
    people = boto3.client("iam", **address)
    keys = {
        "writer": _user(people, "writer", ["s3:*"]),
        "reader": _user(people, "reader", ["s3:Get*", "s3:List*", "s3:Head*"]),
    }
    settings.INITIAL_NO_AUTH_ACTION_COUNT = 0
    print(json.dumps(keys), flush=True)
    threading.Event().wait()


def _user(people: Any, name: str, actions: list[str]) -> list[str]:
    """Make a user who may do these things, and return their keys."""
    people.create_user(UserName=name)
    policy = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": actions, "Resource": "*"}],
    }
    people.put_user_policy(UserName=name, PolicyName=name, PolicyDocument=json.dumps(policy))
    key = people.create_access_key(UserName=name)["AccessKey"]
    return [key["AccessKeyId"], key["SecretAccessKey"]]


if __name__ == "__main__":
    main(int(sys.argv[1]))
