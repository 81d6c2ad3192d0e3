"""The notebooks below `examples` run in a real kernel, and show what they should."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")
pytest.importorskip("pandas")

NOTEBOOKS = Path(__file__).parents[2] / "examples" / "notebooks"
TOKEN = re.compile(r"\b[0-9A-Za-z]{27}_[0-9][0-9A-Za-z]{20}\b")


class Ran:
    """A notebook that was run; what its cells showed."""

    def __init__(self, name: str) -> None:
        self.notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
        client = nbclient.NotebookClient(
            self.notebook, timeout=120, kernel_name="python3", shutdown_kernel="immediate"
        )
        client.execute()

    def shown(self, mime: str) -> list[str]:
        return [data[mime] for data in self.data() if mime in data]

    def data(self) -> list[dict[str, Any]]:
        cells = (cell for cell in self.notebook.cells if cell.cell_type == "code")
        return [output.data for cell in cells for output in cell.outputs if "data" in output]


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a kernel leaves behind goes with the test."""
    for name in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "MPLCONFIGDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")


@pytest.mark.filterwarnings("default")
def test_the_remote_tour_runs() -> None:
    ran = Ran("remote_tour")

    html = "\n".join(ran.shown("text/html"))
    assert re.search(r"<strong[^>]*>ApiKey</strong>", html)
    assert "•••" in html
    assert "3 items" in html
    assert "2 items" in html
    assert re.search(r"<strong[^>]*>Service</strong> <a href=\"http://127", html)
    assert "NotFoundError" in html
    assert not TOKEN.search(str(ran.data()))
    assert "(20, 22)" in "\n".join(ran.shown("text/plain"))
    assert "('/admin', 404, 'no admin')" in "\n".join(ran.shown("text/plain"))


@pytest.mark.filterwarnings("default")
def test_webhooks_are_watched_replayed_and_plotted() -> None:
    ran = Ran("webhooks")

    html = "\n".join(ran.shown("text/html"))
    assert "422 Unprocessable" in html
    assert "<th>disputed</th>" in html
    assert len(ran.shown("image/png")) == 2
    assert re.search(r"[0-9a-f]{64}", html) is None


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_are_kept_without_what_they_showed(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)

    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
