"""Random crops and mirrored pictures: pure, as the key says, and right against a padded reference."""

import numpy as np
import pytest

from tensorbow.data import BatchKey, BatchOrder, CropAndFlip, ImageDataset, PictureChanges, Prefetcher
from tensorbow.errors import InvalidArgumentError
from tensorbow.ops import examples
from tensorbow.ops.examples import WIDE_PICK, change_picture

IMAGES = np.random.default_rng(0).integers(1, 256, (60, 9, 7, 2), np.uint8)
LABELS = np.arange(60, dtype=np.int64) % 6
DATA = ImageDataset("made", IMAGES, LABELS, 6, 0.5, 0.25, CropAndFlip(3))
PLAIN = ImageDataset("made", IMAGES, LABELS, 6, 0.5, 0.25)


def test_against_padding_and_cropping():
    augmentation, key = CropAndFlip(3), BatchKey(5, 1, 2)
    result = IMAGES.copy()
    augmentation(result, key)
    (moves,), (mirrored,) = augmentation.draw(len(IMAGES), [key])
    padded = np.pad(IMAGES, ((0, 0), (3, 3), (3, 3), (0, 0)))
    for n, ((down, right), mirror) in enumerate(zip(moves, mirrored, strict=True)):
        source = padded[n, :, ::-1] if mirror else padded[n]
        expected = source[3 - down : 3 - down + 9, 3 - right : 3 - right + 7]
        np.testing.assert_array_equal(result[n], expected)


@pytest.mark.parametrize("examples", [1, 4, 6])
def test_batches_drawn_together_are_those_drawn_one_by_one(examples):
    """Numbers go up and down, and seeds and epochs change between."""
    keys = [BatchKey(*parts) for parts in [(5, 0, 3), (5, 0, 4), (6, 0, 5), (5, 0, 2), (5, 1, 2), (6, 0, 5)]]
    moves, mirrored = CropAndFlip(4).draw(examples, keys)
    assert moves.shape == (6, examples, 2)
    for key, moves_of_one, mirrored_of_one in zip(keys, moves, mirrored, strict=True):
        (alone,), (mirrored_alone,) = CropAndFlip(4).draw(examples, [key])
        np.testing.assert_array_equal(moves_of_one, alone)
        np.testing.assert_array_equal(mirrored_of_one, mirrored_alone)
    assert CropAndFlip().draw(examples, [])[0].shape == (0, examples, 2)


def test_all_moves_come_equally_often():
    (moves,), (mirrored,) = CropAndFlip(4).draw(90_000, [BatchKey(1, 2, 3)])
    counts = np.bincount((moves + 4) @ [9, 1], minlength=81)
    assert moves.min() == -4
    assert moves.max() == 4
    assert abs(counts - 90_000 / 81).max() < 5 * np.sqrt(90_000 / 81)
    assert mirrored.mean() == pytest.approx(0.5, abs=0.01)


def test_a_pure_function_of_the_key():
    def draw(*key):
        moves, mirrored = CropAndFlip().draw(20, [BatchKey(*key)])
        return moves.tolist(), mirrored.tolist()

    assert draw(1, 2, 3) == draw(1, 2, 3)
    others = [draw(*key) for key in ((1, 2, 3), (2, 2, 3), (1, 3, 3), (1, 2, 4))]
    assert all(a != b for i, a in enumerate(others) for b in others[:i])


def test_fill_augments_only_with_a_key():
    rows = np.arange(10)
    plain, _ = PLAIN.batch(rows)
    np.testing.assert_array_equal(DATA.batch(rows)[0], plain)
    images, labels = np.empty((10, 9, 7, 2), np.float32), np.empty(10, np.int64)
    DATA.fill(rows, images, labels, key=BatchKey(0, 0, 0))
    assert not np.array_equal(images, plain)
    PLAIN.fill(rows, images, labels, key=BatchKey(0, 0, 0))
    np.testing.assert_array_equal(images, plain)
    np.testing.assert_array_equal(DATA.images, IMAGES)


def collected(replicas, depth, rounds, start=(0, 0)):
    order = BatchOrder(60, 5, seed=9)
    found = {}
    with Prefetcher(DATA, order, replicas, depth, start=start, max_rounds=rounds) as prefetcher:
        for _ in range(rounds):
            for replica in range(replicas):
                batch = prefetcher.take(replica)
                found[batch.epoch, batch.number] = batch.images.copy()
                prefetcher.release(batch)
    return found


def test_a_batch_is_the_same_whoever_gets_it_and_when():
    one, three = collected(1, 1, 24), collected(3, 2, 8)
    resumed = collected(2, 3, 6, start=(1, 0))
    assert one.keys() == three.keys()
    for key in one:
        np.testing.assert_array_equal(one[key], three[key])
    for key in resumed:
        np.testing.assert_array_equal(resumed[key], one[key])
    assert not np.array_equal(one[0, 0], one[1, 0])


def test_no_padding_only_mirrors():
    images = IMAGES.copy()
    CropAndFlip(0)(images, BatchKey(0, 0, 0))
    for picture, source in zip(images, IMAGES, strict=True):
        assert np.array_equal(picture, source) or np.array_equal(picture, source[:, ::-1])


def test_pictures_smaller_than_the_move():
    images = np.ones((50, 2, 2, 1), np.uint8)
    CropAndFlip(4)(images, BatchKey(0, 0, 0))
    assert set(images.sum((1, 2, 3)).tolist()) <= {0, 1, 2, 4}


@pytest.mark.parametrize("padding", [-1, 1.5, True])
def test_paddings_that_are_none(padding):
    with pytest.raises(InvalidArgumentError, match="expected padding to be a whole number from 0"):
        CropAndFlip(padding)


def test_cutout_hides_a_square_around_any_pixel():
    images = np.full((4000, 9, 7, 2), 200, np.uint8)
    PictureChanges(cutout=4, level=7)(images, BatchKey(1, 0, 0))
    hidden = (images == 7).all(-1)
    assert np.array_equal(hidden, (images == 7).any(-1))
    for rows, extent in ((hidden.any(2), 9), (hidden.any(1), 7)):
        first, size = rows.argmax(1), rows.sum(1)
        assert set(size.tolist()) == {2, 3, 4}  # the centre lies inside
        assert (hidden.sum((1, 2)) == hidden.any(2).sum(1) * hidden.any(1).sum(1)).all()
        centres = np.bincount(np.where(size == 4, first + 2, np.where(first > 0, first + 2, size - 2)))
        assert abs(centres - 4000 / extent).max() < 5 * np.sqrt(4000 / extent)


def test_changes_draw_apart():
    """Crops and mirrored pictures are the same with and without others beside them."""
    key, both = BatchKey(5, 1, 2), IMAGES.copy()
    PictureChanges(CropAndFlip(3), cutout=3)(both, key)
    moved, hidden = IMAGES.copy(), np.full_like(IMAGES, 1)
    CropAndFlip(3)(moved, key)
    PictureChanges(cutout=3)(hidden, key)
    np.testing.assert_array_equal(both, np.where(hidden == 0, 0, moved))


def changed(images, **changes):
    images = images.copy()
    PictureChanges(**changes)(images, BatchKey(3, 1, 4))
    return images


def pick_of(**columns):
    pick = np.zeros(WIDE_PICK, np.int64)
    for name, value in columns.items():
        pick[getattr(examples, name)] = value
    return pick.tolist()


@pytest.mark.parametrize(
    ("turns", "sine", "versine"), [(1, 65536, 65536), (2, 0, 131072), (3, -65536, 65536)]
)
def test_quarter_turns_are_exact(turns, sine, versine):
    picture = IMAGES[0][:7]
    out = np.empty_like(picture)
    change_picture(picture, pick_of(SINE=sine, VERSINE=versine), out)
    np.testing.assert_array_equal(out, np.rot90(picture, turns))


def test_rotations_are_by_all_angles_up_to_the_most():
    """A bright point right of the centre goes to where its angle says."""
    pictures = np.zeros((300, 41, 41, 1), np.uint8)
    pictures[:, 20, 35] = 255
    turned = changed(pictures, rotation=30)[..., 0].astype(float)
    y, x = ((turned * place).sum((1, 2)) / turned.sum((1, 2)) - 20 for place in np.mgrid[:41, :41])
    assert np.hypot(y, x) == pytest.approx(15, abs=0.1)
    angles = np.rad2deg(np.arctan2(y, x))
    assert abs(angles).max() < 30.5
    assert angles.mean() == pytest.approx(0, abs=3)
    assert angles.std() == pytest.approx(30 / np.sqrt(3), rel=0.1)


def test_colours_change_by_factors():
    grey = np.full((500, 2, 2, 3), 100, np.uint8)
    bright = changed(grey, brightness=0.4)[:, 0, 0, 0].astype(float)
    assert (bright.min(), bright.max()) == pytest.approx((60, 140), abs=1.5)
    assert bright.mean() == pytest.approx(100, abs=3)
    np.testing.assert_array_equal(changed(np.full_like(grey, 128), contrast=0.5), 128)
    contrast = changed(grey, contrast=0.5)[:, 0, 0, 0].astype(float)
    assert (contrast.min(), contrast.max()) == pytest.approx((86, 114), abs=1.5)
    np.testing.assert_array_equal(changed(grey, saturation=0.9), grey)  # has no colour
    red = np.tile(np.array([200, 20, 20], np.uint8), (500, 1, 1, 1))
    saturated = changed(red, saturation=1.0).astype(int)[:, 0, 0]
    luma = saturated @ [0.299, 0.587, 0.114]
    assert abs(luma[saturated.max(1) < 255] - 74).max() < 2
    assert np.ptp(saturated[:, 0] - saturated[:, 1]) > 150
    one_channel = grey[..., :1]
    np.testing.assert_array_equal(changed(one_channel, saturation=0.9), one_channel)


def test_vertical_mirrors():
    images = changed(IMAGES, flip_vertical=True)
    turned = [np.array_equal(picture, old[::-1]) for picture, old in zip(images, IMAGES, strict=True)]
    assert 20 < sum(turned) < 40
    for picture, old, mirrored in zip(images, IMAGES, turned, strict=True):
        assert mirrored or np.array_equal(picture, old)


def test_erased_rectangles():
    pictures = np.full((3000, 20, 30, 1), 200, np.uint8)
    erased = changed(pictures, erase=0.5)[..., 0]
    changes = (erased != 200).any((1, 2))
    assert changes.mean() == pytest.approx(0.5, abs=0.05)
    hidden = (erased != 200)[changes]
    parts = hidden.mean((1, 2))
    assert parts.min() > 0.01
    assert parts.max() < 0.45
    assert (hidden.any(2).sum(1) * hidden.any(1).sum(1) == hidden.sum((1, 2))).all()
    assert len(np.unique(erased)) > 200
    with pytest.raises(InvalidArgumentError, match="expected cutout or erase, got cutout 3 and erase"):
        PictureChanges(cutout=3, erase=0.5)
