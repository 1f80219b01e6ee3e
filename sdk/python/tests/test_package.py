"""The wheel and the sdist are built by one command and installed into fresh environments."""
from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from conftest import StartWorker
from hub import Hub

HERE = Path(__file__).resolve().parent.parent
PROGRAM = """
import sys, attache_sdk
assert "site-packages" in attache_sdk.__file__, attache_sdk.__file__
with attache_sdk.A2AClient() as client:
    print(attache_sdk.__version__, client.call(sys.argv[1], "hello"))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("dist")
    environment = {**os.environ, "ATTACHE_SDK_VENV": sys.prefix}
    subprocess.run([HERE / "build", folder], check=True, env=environment, stdout=subprocess.DEVNULL, timeout=600)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


def test_the_files_have_everything_and_nothing_else(built: dict[str, Path]) -> None:
    assert built["wheel"].name == "attache_sdk-0.1.0-py3-none-any.whl"
    source = {str(path.relative_to(HERE / "src")) for path in (HERE / "src").rglob("*") if path.suffix in (".py", ".typed")}
    with zipfile.ZipFile(built["wheel"]) as wheel:
        names = set(wheel.namelist())
        metadata = wheel.read("attache_sdk-0.1.0.dist-info/METADATA").decode()
    assert {name for name in names if not name.startswith("attache_sdk-0.1.0.dist-info/")} == source
    assert "attache_sdk/py.typed" in names
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert sorted(line.split()[1].split("<")[0].split(">")[0] for line in needed) == ["httpx", "websockets"]
    with tarfile.open(built["sdist"]) as sdist:
        packed = {name.removeprefix("attache_sdk-0.1.0/") for name in sdist.getnames()}
    assert {f"src/{name}" for name in source} < packed and {"README.md", "pyproject.toml"} < packed
    assert not [name for name in packed if "tests" in name or "__pycache__" in name]


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_it_works_from_the_built_file_in_a_fresh_environment(
    kind: str, built: dict[str, Path], hub: Hub, start: StartWorker, tmp_path: Path
) -> None:
    wheels = Path(sys.prefix) / "wheels"
    if not wheels.is_dir():
        pytest.skip(f"{wheels} is missing: sdk/python/test fetches the packages that this one depends on")
    agent = start(lambda run: run.text.upper())
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True, timeout=300)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    offline = ["--no-index", "--find-links", str(wheels)]
    subprocess.run([*pip, "install", "-q", "--no-compile", *offline, str(built[kind])], check=True, timeout=600)
    environment = {"PATH": os.environ["PATH"], "ATTACHE_URL": hub.url, "ATTACHE_KEY": hub.key, "A2A_HOME": str(tmp_path)}
    done = subprocess.run([python, "-c", PROGRAM, agent], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("0.1.0 HELLO\n", "")
