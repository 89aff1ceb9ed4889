"""One's own data: tables, image folders, functions; and the batches made of any data."""

import re
import sys
import textwrap

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from hypersimplex_study import data
from hypersimplex_study.batches import Images, prepare, split
from hypersimplex_study.config import RunConfig
from hypersimplex_study.formats import DataError
from hypersimplex_study.setup import check
from hypersimplex_study.train import Runtime

CPU = torch.device("cpu")


def frame(n=60):
    rng = np.random.default_rng(0)
    label = np.where(np.arange(n) % 3 == 0, "yes", "no")
    return pd.DataFrame(
        {"a": rng.normal(size=n), "b": rng.integers(0, 5, n), "colour": ["red", "blue"] * (n // 2), "y": label}
    )


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_with_a_label_column(tmp_path, suffix):
    table = frame()
    table.loc[3, "a"] = np.nan
    path = tmp_path / f"t.{suffix}"
    table.to_csv(path, index=False) if suffix == "csv" else table.to_parquet(path)
    found = data.load(str(path), label="y")
    assert found.classes == ("no", "yes")
    # a, b, and one column for each of two colours; every fifth row of each class for the test
    assert found.train_x.shape == (48, 4)
    assert found.test_y.mean() == pytest.approx(1 / 3, abs=0.01)
    assert np.isfinite(found.train_x).all()
    ready = prepare(found, None, 0.25, False, CPU)
    rows = ready.train.batch(ready.train_rows)
    torch.testing.assert_close(rows.mean(0), torch.zeros(4), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (None, "label must name the label column of .*; its columns are a, b, colour, y"),
        ("z", "label must be a column of .*, got 'z'; its columns are a, b, colour, y"),
        ("a", "column 'a' must repeat its classes, got 60 in 60 rows"),
    ],
)
def test_a_wrong_label_column_is_named(tmp_path, label, message):
    frame().to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(DataError, match=message):
        data.load(str(tmp_path / "t.csv"), label=label)


def test_a_wrong_column_lists_all_and_says_what_was_meant(tmp_path):
    table = frame()
    for i in range(30):
        table[f"Feature {i}"] = table["a"]
    table.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(DataError, match=r"got 'Colour' \(did you mean 'colour'\?\); its columns .*, Feature 29$"):
        data.load(str(tmp_path / "t.csv"), label="Colour")
    with pytest.raises(DataError, match=r"drop must be a column of .*, got 'feature_3' \(did you mean 'Feature 3'\?\)"):
        data.load(str(tmp_path / "t.csv"), label="y", drop=("feature_3",))
    with pytest.raises(DataError, match="drop must leave the label column, got 'y'"):
        data.load(str(tmp_path / "t.csv"), label="y", drop=("y",))


def test_a_column_is_left_out(tmp_path):
    frame().to_csv(tmp_path / "t.csv", index=False)
    whole, part = (data.load(str(tmp_path / "t.csv"), label="y", drop=d) for d in ((), ("b", "colour")))
    np.testing.assert_array_equal(part.train_x, whole.train_x[:, :1])
    with pytest.raises(DataError, match="must have a column beside 'y', got none that is not dropped"):
        data.load(str(tmp_path / "t.csv"), label="y", drop=("a", "b", "colour"))


def test_ids_are_named_as_such(tmp_path):
    table = frame(240)
    table["customer no"] = np.random.default_rng(0).permutation(240) + 1000
    table["name"] = [f"person {i}" for i in range(240)]
    table.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(
        DataError,
        match=r"must repeat its values, got 'name' with 240 values in 240 rows, .*leave out with --drop name$",
    ):
        data.load(str(tmp_path / "t.csv"), label="y")
    found = data.load(str(tmp_path / "t.csv"), label="y", drop=("name",))
    assert len(found.notes) == 1
    assert "column 'customer no' looks like an ID, 240 different whole numbers in as many rows" in found.notes[0]
    assert "leave it out with --drop 'customer no'" in found.notes[0]
    assert data.load(str(tmp_path / "t.csv"), label="y", drop=("name", "customer no")).notes == ()


def test_what_is_no_data_set_is_named():
    with pytest.raises(DataError, match=r"dataset must be one of digits, .*, adult, .*a \.csv"):
        data.load("mnist")
    with pytest.raises(DataError, match=r"nowhere.csv does not exist"):
        data.load("nowhere.csv", label="y")
    with pytest.raises(DataError, match="cannot be imported"):
        data.load("no_such_module:make")


def write_images(root, classes=("cat", "dog"), count=10, size=(9, 8)):
    rng = np.random.default_rng(0)
    for name in classes:
        (root / name).mkdir(parents=True)
        for i in range(count):
            Image.fromarray(rng.integers(0, 256, (*size, 3), np.uint8)).save(root / name / f"{i}.png")


def test_an_image_folder_is_split(tmp_path):
    write_images(tmp_path / "pets")
    found = data.load(str(tmp_path / "pets"))
    assert (found.train_x.shape, found.test_x.shape) == ((16, 9, 8, 3), (4, 9, 8, 3))
    assert found.classes == ("cat", "dog")


def test_an_image_folder_with_its_own_split(tmp_path):
    write_images(tmp_path / "train")
    write_images(tmp_path / "test", count=3)
    assert len(data.load(str(tmp_path)).test_y) == 6


def test_hidden_folders_are_no_classes(tmp_path):
    write_images(tmp_path)
    write_images(tmp_path, (".ipynb_checkpoints", "cat/.thumbnails"), size=(3, 3))
    assert data.load(str(tmp_path)).classes == ("cat", "dog")


def test_images_of_two_sizes_are_named(tmp_path):
    write_images(tmp_path, ("cat",))
    write_images(tmp_path, ("dog",), size=(5, 5))
    message = "must be of the first image's size (9, 8), got (5, 5); --resize 32, say, makes all of one size"
    with pytest.raises(DataError, match=re.escape(message)):
        data.load(str(tmp_path))


def test_images_of_two_sizes_are_made_one(tmp_path):
    write_images(tmp_path, ("cat",))
    write_images(tmp_path, ("dog",), size=(5, 17))
    found = data.load(str(tmp_path), resize=12)
    assert found.train_x.shape == (16, 12, 12, 3)
    with Image.open(tmp_path / "cat" / "0.png") as image:
        expected = np.asarray(image.resize((12, 12), Image.Resampling.BILINEAR))
    assert any(np.array_equal(expected, x) for x in (*found.train_x, *found.test_x))


def test_a_function_brings_data_and_model(tmp_path, monkeypatch):
    module = """
        import numpy as np
        from torch import nn
        def make():
            x = np.random.default_rng(0).normal(size=(30, 3))
            y = (x[:, 0] > 0).astype(int)
            return (x[:20], y[:20], x[20:], y[20:]), lambda: nn.Linear(3, 2)
        def network():
            return make()[0], nn.Linear(3, 2)
        def wrong():
            return 3
        def broken():
            return {}["zzz"]
        def words():
            (x, y, _, _), model = make()
            return (x, y.astype(str), x, y), model
        def shares():
            (x, y, _, _), model = make()
            return (x, y / 2, x, y), model
        def narrow():
            return make()[0], lambda: nn.Linear(3, 1)
        def other_shape():
            return make()[0], lambda: nn.Linear(5, 2)
        def no_network():
            return make()[0], lambda: 3
    """
    (tmp_path / "my_study.py").write_text(textwrap.dedent(module))
    monkeypatch.syspath_prepend(str(tmp_path))
    found = data.load("my_study:make")
    assert found.model().out_features == 2
    assert found.train_x.dtype == np.float32
    # a network instead of a way to make one is made anew each time
    again = data.load("my_study:network")
    assert not torch.equal(again.model().weight, again.model().weight)
    with pytest.raises(DataError, match=r"my_study:wrong must return \(dataset, model\)"):
        data.load("my_study:wrong")
    with pytest.raises(DataError, match=r"my_study:broken raised KeyError: 'zzz' \(.*my_study\.py, line 13\)"):
        data.load("my_study:broken")
    for name in ("words", "shares"):
        with pytest.raises(DataError, match=f"my_study:{name}: labels must be one whole number a sample, got"):
            data.load(f"my_study:{name}")
    messages = {
        "narrow": "the network must give 2 outputs, got 1",
        "other_shape": "the network cannot take samples of shape (3,)",
        "no_network": "model() must return a torch.nn.Module, got int",
    }
    for name, message in messages.items():
        with pytest.raises(ValueError, match=re.escape(f"my_study:{name}: {message}")):
            check([RunConfig(dataset=f"my_study:{name}", batch_size=8)], Runtime())
    check([RunConfig(dataset="my_study:make", batch_size=8)], Runtime())
    sys.modules.pop("my_study")


def test_splits_are_disjoint_stratified_and_the_same_every_time():
    digits = data.digits()
    train, held = split(digits, 1000, 0.1)
    assert abs(len(train) + len(held) - 1000) <= 10
    assert not set(train) & set(held)
    counts = np.bincount(digits.train_y[held])
    assert counts.max() - counts.min() <= 2
    np.testing.assert_array_equal(split(digits, 1000, 0.1)[1], held)
    with pytest.raises(ValueError, match="subset must be at most"):
        split(digits, 10_000, 0.1)


def crop_and_flip(x, padding, down, right, flip):
    """One image at a time, as the definition says."""
    padded = np.pad(x, ((padding, padding), (padding, padding), (0, 0)), mode="reflect")
    cut = padded[down : down + x.shape[0], right : right + x.shape[1]]
    return cut[:, ::-1] if flip else cut


@pytest.mark.parametrize("channels", [1, 3])
def test_augmentation_is_a_crop_a_flip_and_a_normalisation(channels):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (20, 7, 6, channels), np.uint8)
    mean, std = torch.rand(channels), torch.rand(channels) + 0.5
    images = Images(x, 2, mean, std, CPU)
    picks = torch.tensor([3, 3, 19, 0, 7, 11, 3, 5])
    batch = images.batch(picks, torch.Generator().manual_seed(5))
    generator = torch.Generator().manual_seed(5)
    moves = torch.randint(0, 5, (2, 8), generator=generator)
    flips = torch.randint(0, 2, (8, 1), generator=generator)
    assert 0 < flips.sum() < 8
    for i, pick in enumerate(picks.tolist()):
        expected = crop_and_flip(x[pick], 2, int(moves[0, i]), int(moves[1, i]), bool(flips[i]))
        normal = (torch.tensor(expected.copy()) / 255 - mean) / std
        torch.testing.assert_close(batch[i], normal.permute(2, 0, 1), atol=1e-5, rtol=1e-5)
    plain = (torch.tensor(x[picks.numpy()]) / 255 - mean) / std
    torch.testing.assert_close(images.batch(picks), plain.permute(0, 3, 1, 2), atol=1e-5, rtol=1e-5)


def test_every_shift_and_flip_occurs():
    x = np.arange(25, dtype=np.uint8).reshape(1, 5, 5, 1)
    images = Images(x, 1, torch.zeros(1), torch.ones(1), CPU)
    batch = images.batch(torch.zeros(2000, dtype=torch.int64), torch.Generator().manual_seed(0))
    kinds = {tuple((255 * image).round().int().flatten().tolist()) for image in batch}
    assert len(kinds) == 18
