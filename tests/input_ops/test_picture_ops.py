"""Pictures decoded and encoded by steps, against Pillow itself."""

import io

import numpy as np
import pytest
from PIL import Image

import tensorbow as tb
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, UnimplementedError

pytestmark = pytest.mark.usefixtures("session")

GRAY = np.arange(20, dtype=np.uint8).reshape(4, 5) * 12
COLOR = np.stack([GRAY, GRAY[::-1], 255 - GRAY], -1)


def file_of(array, kind, **options):
    file = io.BytesIO()
    (array if isinstance(array, Image.Image) else Image.fromarray(array)).save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_png_there_and_back(session, channels):
    picture = np.concatenate([COLOR, GRAY[..., None]], -1)[:, :, :channels]
    encoded = tb.image.encode_png(picture, compression=9)
    assert session.run(encoded)[:8] == b"\x89PNG\r\n\x1a\n"
    decoded = tb.image.decode_png(encoded)
    assert np.array_equal(session.run(decoded), picture)
    assert np.array_equal(session.run(tb.image.decode_image(encoded)), picture)


def test_channels_of_choice(session):
    png = file_of(COLOR, "PNG")
    for channels, mode in ((1, "L"), (3, "RGB"), (4, "RGBA")):
        decoded = tb.image.decode_png(png, channels=channels)
        assert decoded.shape == [None, None, channels]
        expected = np.asarray(Image.fromarray(COLOR).convert(mode)).reshape(4, 5, channels)
        assert np.array_equal(session.run(decoded), expected)
    palette = file_of(Image.fromarray(COLOR).quantize(256), "PNG")
    assert session.run(tb.image.decode_png(palette)).shape == (4, 5, 3)
    clear = file_of(Image.fromarray(COLOR).quantize(256), "PNG", transparency=0)
    assert session.run(tb.image.decode_png(clear)).shape == (4, 5, 4)
    bits = file_of(Image.fromarray(GRAY > 100), "PNG")
    assert np.array_equal(session.run(tb.image.decode_png(bits))[:, :, 0], (GRAY > 100) * 255)


def test_sixteen_bits(session):
    deep = (np.arange(20, dtype=np.uint16).reshape(4, 5, 1) * 3001).astype(np.uint16)
    encoded = session.run(tb.image.encode_png(deep))
    assert np.array_equal(session.run(tb.image.decode_png(encoded, dtype=tb.uint16)), deep)
    assert np.array_equal(session.run(tb.image.decode_png(encoded)), deep >> 8)
    wide = session.run(tb.image.decode_png(file_of(COLOR, "PNG"), dtype=tb.uint16))
    assert np.array_equal(wide, COLOR.astype(np.uint16) * 257)


def test_colours_of_sixteen_bits_are_refused(session):
    import struct
    import zlib

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 16, 2, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(b"\0" + bytes(range(6))))
    png = b"\x89PNG\r\n\x1a\n" + header + pixels + chunk(b"IEND", b"")
    assert session.run(tb.image.decode_png(png)).tolist() == [[[0, 2, 4]]]
    with pytest.raises(UnimplementedError, match="Pillow reads colours of 16 bits as 8 bits"):
        session.run(tb.image.decode_png(png, dtype=tb.uint16))


def test_jpeg(session):
    smooth = np.zeros((32, 48, 3), np.uint8) + np.uint8([10, 200, 90])
    encoded = tb.image.encode_jpeg(smooth, quality=100, chroma_downsampling=False, progressive=True)
    found = session.run(tb.image.decode_jpeg(encoded))
    assert np.abs(found.astype(int) - smooth).max() <= 2
    assert session.run(tb.image.decode_jpeg(encoded, ratio=4)).shape == (8, 12, 3)
    odd = tb.image.encode_jpeg(smooth[:17, :9])
    assert [session.run(tb.image.decode_jpeg(odd, ratio=n)).shape[:2] for n in (2, 4, 8)] == [
        (9, 5), (5, 3), (3, 2),
    ]  # fmt: skip
    assert session.run(tb.image.decode_jpeg(encoded, channels=1)).shape == (32, 48, 1)
    gray = tb.image.encode_jpeg(smooth[:, :, :1], format="grayscale", optimize_size=True)
    assert session.run(tb.image.decode_jpeg(gray)).shape == (32, 48, 1)
    sizes = [len(session.run(tb.image.encode_jpeg(COLOR, quality=quality))) for quality in (10, 95)]
    assert sizes[0] < sizes[1]


def test_bmp_and_gif(session):
    assert np.array_equal(session.run(tb.image.decode_bmp(file_of(COLOR, "BMP"))), COLOR)
    frames = [Image.fromarray(np.full((4, 5, 3), value, np.uint8)) for value in (0, 255)]
    gif = file_of(frames[0], "GIF", save_all=True, append_images=frames[1:])
    for decode in (tb.image.decode_gif, tb.image.decode_image):
        found = session.run(decode(gif))
        assert found.shape == (2, 4, 5, 3)
        assert [int(frame.mean()) for frame in found] == [0, 255]


def test_the_kind_is_found_by_the_content(session):
    content = tb.placeholder(tb.string, [])
    picture = tb.image.decode_image(content, channels=3)
    for kind in ("PNG", "BMP"):
        assert np.array_equal(session.run(picture, {content: file_of(COLOR, kind)}), COLOR)
    assert session.run(picture, {content: file_of(COLOR, "JPEG")}).shape == (4, 5, 3)


def test_a_picture_is_prepared_for_a_model(session):
    pixels = tb.image.decode_png(file_of(COLOR, "PNG"), channels=3)
    pixels.set_shape([4, 5, 3])
    small = tb.image.resize_images(tb.expand_dims(tb.cast(pixels, tb.float32), 0), [2, 2])
    assert session.run(small).shape == (1, 2, 2, 3)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tb.image.decode_png(file_of(COLOR, "BMP")), "DecodePng: the string of .* bytes is no PNG"),
        (lambda: tb.image.decode_png(file_of(COLOR, "PNG")[:-30]), "truncated or damaged"),
        (lambda: tb.image.decode_jpeg(file_of(COLOR, "JPEG")[:-60]), "truncated or damaged"),
        (lambda: tb.image.decode_image(""), "is no PNG or JPEG or GIF or BMP"),
        (lambda: tb.image.decode_png("", channels=2), "expected channels to be one of 0, 1, 3, 4, got"),
        (lambda: tb.image.decode_jpeg("", ratio=3), "expected ratio to be one of 1, 2, 4, 8"),
        (lambda: tb.image.decode_png("", dtype=tb.float32), "expected dtype to be uint8 or uint16"),
        (lambda: tb.image.decode_image(file_of(GRAY, "GIF"), channels=1), "a GIF has 3 channels"),
        (lambda: tb.image.encode_png(GRAY), r"image is uint8\[4, 5\], expected \[height, width, channels\]"),
        (lambda: tb.image.encode_png(COLOR.astype(np.float32)), "image has dtype float32, expected uint8 or"),
        (lambda: tb.image.encode_png(COLOR.astype(np.uint16)), "of 16 bits only gray pictures are written"),
        (lambda: tb.image.encode_jpeg(COLOR, format="grayscale"), "3 channels, not those of 'grayscale'"),
        (lambda: tb.image.encode_png(np.zeros((0, 2, 1), np.uint8)), "which is no picture"),
    ],
)
def test_refused(session, make, words):
    with pytest.raises(InvalidArgumentError, match=words):
        session.run(make())


def test_without_pillow(session, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(FailedPreconditionError, match=r"pip install 'tensorbow\[image\]'"):
        session.run(tb.image.decode_png(b""))


@pytest.mark.usefixtures("reference_kernels")
def test_batches_of_pictures_of_several_sizes(tmp_path):
    """Each picture is resized, cropped and padded in the threads that decode it, whatever its size."""
    sizes = [(20, 31), (24, 17), (9, 40), (16, 16)]
    for number, (height, width) in enumerate(sizes):
        pixels = np.full((height, width, 3), 40 * number + 20, np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.jpg")
    names = tb.train.match_filenames_once(f"{tmp_path}/*.jpg")
    queue = tb.train.string_input_producer(names, num_epochs=1, shuffle=False)
    _, contents = tb.WholeFileReader().read(queue)
    picture = tb.image.decode_jpeg(contents, channels=3)
    resized = tb.image.resize_images(picture, [8, 6])
    fitted = tb.image.resize_image_with_crop_or_pad(picture, 16, 16)
    middle = tb.image.resize_bilinear(tb.expand_dims(tb.image.central_crop(picture, 0.5), 0), [4, 4])[0]
    standard = tb.image.per_image_standardization(resized)
    batch = tb.train.batch([resized, fitted, middle, standard], 4)
    assert [each.shape.as_list() for each in batch[:2]] == [[4, 8, 6, 3], [4, 16, 16, 3]]
    with tb.Session() as session:
        session.run([tb.global_variables_initializer(), tb.local_variables_initializer()])
        coordinator = tb.train.Coordinator()
        threads = tb.train.start_queue_runners(session, coordinator)
        found = session.run(batch)
        coordinator.request_stop()
        coordinator.join(threads)
    for number, (height, width) in enumerate(sizes):
        value = 40 * number + 20
        np.testing.assert_allclose(found[0][number], value, atol=3)
        inside = found[1][number, max(0, (16 - height) // 2), max(0, (16 - width) // 2)]
        np.testing.assert_allclose(inside, value, atol=3)
        assert (found[1][number] > 0).any(-1).sum() == min(height, 16) * min(width, 16)
        np.testing.assert_allclose(found[2][number], value, atol=3)
        assert abs(found[3][number]).max() < 50


def test_a_part_of_a_jpeg(session):
    pixels = np.zeros((32, 48, 3), np.uint8) + np.arange(48, dtype=np.uint8)[:, None]
    encoded = tb.image.encode_jpeg(pixels, quality=100)
    whole = session.run(tb.image.decode_jpeg(encoded, dct_method="INTEGER_ACCURATE"))
    window = tb.placeholder(tb.int32, [4])
    for part in ([2, 3, 5, 7], window):
        found = session.run(tb.image.decode_and_crop_jpeg(encoded, part), {window: [2, 3, 5, 7]})
        assert np.array_equal(found, whole[2:7, 3:10])
    with pytest.raises(InvalidArgumentError, match="crop_window to be"):
        tb.image.decode_and_crop_jpeg(encoded, [1, 2])


def test_headers_of_jpegs(session):
    found = tb.image.encode_jpeg(COLOR)
    gray = tb.image.encode_jpeg(COLOR[:, :, :1], format="grayscale")
    png = tb.image.encode_png(COLOR)
    shapes = [tb.image.extract_jpeg_shape(found), tb.image.extract_jpeg_shape(gray, tb.int64)]
    assert [each.shape for each in shapes] == [[3], [3]]
    first, second = session.run(shapes)
    assert first.tolist() == list(COLOR.shape)
    assert (second.tolist(), second.dtype) == ([*COLOR.shape[:2], 1], np.int64)
    assert session.run(tb.image.is_jpeg(tb.stack([found, png, ""]))).tolist() == [True, False, False]
    with pytest.raises(InvalidArgumentError, match="is no JPEG"):
        session.run(tb.image.extract_jpeg_shape(png))
    with pytest.raises(InvalidArgumentError, match="output_type to be int32 or int64, got uint8"):
        tb.image.extract_jpeg_shape(found, tb.uint8)
