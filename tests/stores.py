"""Emulators of Google Cloud Storage and Azure, if they run: ``make test-stores`` starts them."""

from __future__ import annotations

import os
import uuid

import pytest
from pyarrow import fs

from tests.conftest import Store

#: the address of fake-gcs-server, such as http://127.0.0.1:4443
GS = os.environ.get("HOLDFAST_TEST_GS", "")
#: the address of Azurite's blobs, such as http://127.0.0.1:10000
AZURE = os.environ.get("HOLDFAST_TEST_AZURE", "")

#: what everybody knows of Azurite
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
HOST = f"{ACCOUNT}.dfs.core.windows.net"


def skip_without_emulators() -> None:
    """Skip the module that calls this, unless both emulators run."""
    if not (GS and AZURE):
        reason = "needs the emulators of Google Cloud Storage and Azure: make test-stores"
        pytest.skip(reason, allow_module_level=True)


def new_store(kind: str) -> Store:
    """Make a bucket or a container."""
    name = f"holdfast-{uuid.uuid4().hex}"
    return _gs(name) if kind == "gs" else _azure(name)


def gs_options(endpoint: str = GS) -> dict[str, str]:
    """Return the settings of a job for an endpoint without credentials."""
    return {"fs.gs.storage.root.url": endpoint, "fs.gs.auth.type": "UNAUTHENTICATED"}


def azure_options(endpoint: str = AZURE, key: str = KEY) -> dict[str, str]:
    """Return the settings of a job for an endpoint and its account's key."""
    return {"fs.azure.abfs.endpoint": endpoint, f"fs.azure.account.key.{HOST}": key}


def _gs(name: str) -> Store:
    scheme, _, address = GS.partition("://")
    google = fs.GcsFileSystem(
        anonymous=True, scheme=scheme, endpoint_override=address, project_id="holdfast"
    )
    google.create_dir(name)
    return Store(f"gs://{name}", gs_options())


def _azure(name: str) -> Store:
    scheme, _, address = AZURE.partition("://")
    azure = fs.AzureFileSystem(
        ACCOUNT,
        account_key=KEY,
        blob_storage_authority=address,
        dfs_storage_authority=address,
        blob_storage_scheme=scheme,
        dfs_storage_scheme=scheme,
    )
    azure.create_dir(name)
    return Store(f"abfss://{name}@{HOST}", azure_options())
