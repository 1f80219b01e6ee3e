"""What is generated is up to date, and the generator notices when it isn't."""
from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import attache_sdk.types as types

HERE = Path(__file__).resolve().parent.parent
OPENAPI = HERE.parent.parent / "openapi" / "openapi.json"


def check(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(folder / "generate"), "--check"], capture_output=True, text=True)


def test_the_committed_files_are_those_the_generator_makes() -> None:
    done = check(HERE)
    assert done.returncode == 0, done.stderr


def test_a_change_of_the_document_or_of_a_client_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "sdk" / "python"
    (folder / "src").mkdir(parents=True)
    (tmp_path / "openapi").mkdir()
    shutil.copytree(HERE / "src" / "attache_sdk", folder / "src" / "attache_sdk")
    shutil.copy(HERE / "generate", folder / "generate")
    shutil.copy(OPENAPI, tmp_path / "openapi" / "openapi.json")
    assert check(folder).returncode == 0

    document = json.loads(OPENAPI.read_text())
    document["components"]["schemas"]["CallRequest"]["properties"]["colour"] = {"type": "string"}
    (tmp_path / "openapi" / "openapi.json").write_text(json.dumps(document))
    done = check(folder)
    assert done.returncode == 1 and "types.py" in done.stderr

    shutil.copy(OPENAPI, tmp_path / "openapi" / "openapi.json")
    client = folder / "src" / "attache_sdk" / "_aio" / "client.py"
    client.write_text(client.read_text() + "\nMORE = 1\n")
    done = check(folder)
    assert done.returncode == 1 and "_sync/client.py" in done.stderr


def test_every_schema_has_a_type() -> None:
    schemas = json.loads(OPENAPI.read_text())["components"]["schemas"]
    assert sorted(schemas) == types.__all__
    for name, schema in schemas.items():
        if "properties" in schema:
            made = getattr(types, name)
            assert set(made.__annotations__) | set(made.__required_keys__) | set(made.__optional_keys__) == set(schema["properties"])
            assert made.__required_keys__ == frozenset(schema.get("required", [])), name
