"""A dataset as a LeRobotDataset v3.0, which LeRobot opens: a frame for each control period, without pictures.

The format is that of LeRobot's ``src/lerobot/datasets``: ``meta/info.json``, ``meta/stats.json``,
``meta/tasks.parquet``, ``meta/episodes/`` and ``data/``, here with one file each.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from td3robot.atomic import Replacement
from td3robot.errors import MissingExtraError
from td3robot.report.dataset import Columns, Dataset
from td3robot.report.html import ReportError

VERSION = "v3.0"
FILE = "chunk-000/file-000.parquet"
TEMPLATE = "chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
QUANTILES = (0.01, 0.10, 0.50, 0.90, 0.99)


def features(dataset: Dataset) -> dict[str, dict[str, Any]]:
    """Describe the columns as LeRobot does."""
    return {
        key: {"dtype": str(values.dtype), "shape": list(values.shape[1:]) or [1], "names": dataset.about.names.get(key)}
        for key, values in numbered(dataset)[0].items()
    }


def statistics(values: NDArray[Any]) -> dict[str, list[float]]:
    """Return the statistics of a column, each a list of one number for each component."""
    rows = np.asarray(values, np.float64).reshape(len(values), -1)
    found = {name: getattr(np, name)(rows, axis=0).tolist() for name in ("min", "max", "mean", "std")}
    quantiles = np.quantile(rows, QUANTILES, axis=0).tolist()
    return found | {"count": [len(rows)]} | {
        f"q{round(100 * share):02d}": each for share, each in zip(QUANTILES, quantiles, strict=True)
    }  # fmt: skip


def write_dataset(dataset: Dataset, out: Path) -> None:
    """Write a dataset into a new folder.

    Raises:
        MissingExtraError: The package pyarrow is not installed.
        ReportError: There is such a folder, or it cannot be written.
    """
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise MissingExtraError("lerobot", "writing a dataset for LeRobot") from None
    if out.exists():
        raise ReportError(f"{out} exists; choose another folder, because a dataset is written as a whole")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with Replacement(out) as folder:
            _write(dataset, folder)
    except OSError as error:
        raise ReportError(f"{out} cannot be written: {error.strerror}") from None


def numbered(dataset: Dataset) -> list[Columns]:
    """Return the columns of every episode, with those that LeRobot numbers the frames with."""
    found, start, tasks = [], 0, task_texts(dataset)
    for number, (columns, task) in enumerate(zip(dataset.episodes, dataset.tasks, strict=True)):
        count = len(columns["action"])
        frames = np.arange(count, dtype=np.int64)
        found.append(columns | {
            # LeRobot's time is the frame's place at the dataset's rate; measured.time is what the clock said.
            "timestamp": (frames / dataset.about.rate_hz).astype(np.float32),
            "frame_index": frames,
            "episode_index": np.full(count, number, np.int64),
            "index": frames + start,
            "task_index": np.full(count, tasks.index(task), np.int64),
        })  # fmt: skip
        start += count
    return found


def task_texts(dataset: Dataset) -> list[str]:
    """Return the different tasks, in order."""
    return list(dict.fromkeys(dataset.tasks))


def _write(dataset: Dataset, folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name in ("data/chunk-000", "meta/episodes/chunk-000"):
        (folder / name).mkdir(parents=True)
    episodes, described = numbered(dataset), features(dataset)
    schema = pa.schema([(key, _type(feature)) for key, feature in described.items()])
    with pq.ParquetWriter(folder / "data" / FILE, schema) as writer:
        for columns in episodes:  # one row group for each episode, as LeRobot writes them
            arrays = [_array(columns[key], schema.field(key).type) for key in schema.names]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
    rows = [_episode(columns, task) for columns, task in zip(episodes, dataset.tasks, strict=True)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "meta" / "episodes" / FILE)
    _write_tasks(task_texts(dataset), folder / "meta" / "tasks.parquet")
    _write_json(folder / "meta" / "info.json", _info(dataset, described))
    joined = {key: np.concatenate([columns[key] for columns in episodes]) for key in described}
    _write_json(folder / "meta" / "stats.json", {key: statistics(values) for key, values in joined.items()})


def _write_tasks(tasks: list[str], path: Path) -> None:
    """Write the tasks as pandas writes a table with an index, which LeRobot reads with pandas."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {"task_index": ("int64", "int64"), "task": ("unicode", "object")}
    columns = [
        {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": stored, "metadata": None}
        for name, (kind, stored) in kinds.items()
    ]
    pandas = {"index_columns": ["task"], "column_indexes": [], "columns": columns, "pandas_version": "2.0.0"}
    table = pa.table({"task_index": list(range(len(tasks))), "task": tasks})
    pq.write_table(table.replace_schema_metadata({"pandas": json.dumps(pandas)}), path)


def _type(feature: dict[str, Any]) -> Any:
    import pyarrow as pa

    single = pa.bool_() if feature["dtype"] == "bool" else pa.type_for_alias(feature["dtype"])
    return single if feature["shape"] == [1] else pa.list_(single, feature["shape"][0])


def _array(values: NDArray[Any], kind: Any) -> Any:
    import pyarrow as pa

    if values.ndim == 1:
        return pa.array(values, kind)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel(), kind.value_type), values.shape[1])


def _episode(columns: Columns, task: str) -> dict[str, Any]:
    """Return an episode's row of the metadata."""
    start, count = int(columns["index"][0]), len(columns["index"])
    row: dict[str, Any] = {
        "episode_index": int(columns["episode_index"][0]), "tasks": [task], "length": count,
        "data/chunk_index": 0, "data/file_index": 0, "dataset_from_index": start, "dataset_to_index": start + count,
        "meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0,
    }  # fmt: skip
    for key, values in columns.items():
        row |= {f"stats/{key}/{name}": found for name, found in statistics(values).items()}
    return row


def _info(dataset: Dataset, described: dict[str, Any]) -> dict[str, Any]:
    rate, episodes = dataset.about.rate_hz, len(dataset.episodes)
    return {
        "codebase_version": VERSION, "robot_type": dataset.about.robot, "total_episodes": episodes,
        "total_frames": dataset.frames, "total_tasks": len(task_texts(dataset)), "chunks_size": 1000,
        "data_files_size_in_mb": 100, "video_files_size_in_mb": 200,
        "fps": int(rate) if rate.is_integer() else rate, "splits": {"train": f"0:{episodes}"},
        "data_path": f"data/{TEMPLATE}", "video_path": None, "features": described,
    }  # fmt: skip


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=4) + "\n", encoding="utf-8")
