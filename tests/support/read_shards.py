"""Reads shards with the reference safetensors library, and by hand.

    read_shards.py sample FOLDER
    read_shards.py model FOLDER MODEL STEP RANKS

`sample`: those of //tests/storage/format:write_sample. `model`: a checkpoint of the trainer's. Its
state is the MODEL's, each byte of which grows by one in a step, the float32 tensor `rows` of 7x3,
split over the ranks, and the bool tensor `mine` of 5, which each rank has of its own. Prints
`ok NAME` or `not ok NAME` for each case; exit code 1 if one failed.
"""

import json
import math
import pathlib
import sys
import traceback

import numpy as np
import safetensors

# Size of an element, and its type in the header: none where the stock PyTorch reader has none.
DTYPES = {
    "float64": (8, "F64"), "float32": (4, "F32"), "float16": (2, "F16"), "bfloat16": (2, "BF16"),
    "int64": (8, "I64"), "int32": (4, "I32"), "int16": (2, "I16"), "int8": (1, "I8"),
    "uint8": (1, "U8"), "bool": (1, "BOOL"), "uint16": (2, "U16"), "uint32": (4, "U32"),
    "uint64": (8, "U64"), "complex64": (8, "C64"), "complex128": (16, None),
    "complex32": (4, None), "bcomplex32": (4, None), "float8_e4m3fn": (1, "F8_E4M3"),
    "float8_e4m3fnuz": (1, "F8_E4M3FNUZ"), "float8_e5m2": (1, "F8_E5M2"),
    "float8_e5m2fnuz": (1, "F8_E5M2FNUZ"), "float8_e8m0fnu": (1, None),
    "float4_e2m1fn_x2": (1, None),
}  # fmt: skip

SIZES = {name: size for size, name in DTYPES.values() if name}

# Tensors of the sample without elements: key, file, header entry.
EMPTY = {
    "empty": (0, "F32", [0, 3]),
    "empty.complex": (1, "U8", [4, 0, 16]),
    "empty.alone": (2, "U8", [0, 1]),
}


ROWS = "rows"


def no_key_twice(pairs):
    result = dict(pairs)
    assert len(result) == len(pairs), f"a key comes twice: {[key for key, _ in pairs]}"
    return result


class File:
    """A safetensors file, read by hand."""

    def __init__(self, path):
        content = path.read_bytes()
        self.path = path
        self.header_bytes = 8 + int.from_bytes(content[:8], "little")
        self.text = content[8 : self.header_bytes].decode("utf-8")
        self.data = content[self.header_bytes :]
        self.entries = json.loads(self.text, object_pairs_hook=no_key_twice)
        self.metadata = self.entries.pop("__metadata__", {})

    def bytes_of(self, key):
        begin, end = self.entries[key]["data_offsets"]
        return self.data[begin:end]


class Shard(File):
    """One of ours."""

    def __init__(self, path):
        super().__init__(path)
        self.sharding = json.loads(
            self.metadata["DCP_SHARDING_INFO"], object_pairs_hook=no_key_twice
        )


class Shards:
    """What holds for all of them."""

    least_read = 1  # So many tensors the library must read.

    def __init__(self, folder):
        self.shards = [Shard(path) for path in sorted(folder.glob("*.safetensors"))]

    def case_data_starts_at_a_multiple_of_4096_after_spaces(self):
        for shard in self.shards:
            assert shard.header_bytes % 4096 == 0, shard.path
            end = shard.text.rindex("}") + 1
            assert set(shard.text[end:]) <= {" "}, shard.path
            assert shard.text.startswith('{"__metadata__":'), shard.path
            assert shard.metadata["format"] == "pt", shard.path
            assert shard.metadata["DCP_VERSION"], shard.path

    def case_entries_cover_the_data_exactly(self):
        for shard in self.shards:
            end = 0
            for entry in sorted(shard.entries.values(), key=lambda e: e["data_offsets"]):
                assert entry["data_offsets"][0] == end, (shard.path, entry)
                end = entry["data_offsets"][1]
            assert end == len(shard.data), shard.path

    def case_every_entry_has_its_offsets_in_the_sharding_info(self):
        for shard in self.shards:
            assert set(shard.sharding) == set(shard.entries), shard.path
            for key, entry in shard.entries.items():
                offsets = shard.sharding[key]["saved_offsets"]
                assert len(offsets) == len(entry["shape"]), (shard.path, key)

    def case_the_reference_library_opens_every_shard_and_reads_every_tensor(self):
        read = 0
        without_numpy = set()
        for shard in self.shards:
            with safetensors.safe_open(shard.path, framework="np") as opened:
                assert set(opened.keys()) == set(shard.entries), shard.path
                assert opened.metadata() == shard.metadata, shard.path
                for key, entry in shard.entries.items():
                    try:
                        array = opened.get_tensor(key)
                    except (TypeError, AttributeError, safetensors.SafetensorError):
                        without_numpy.add(entry["dtype"])  # NumPy has no such type.
                        continue
                    assert array.tobytes() == shard.bytes_of(key), key
                    assert list(array.shape) == entry["shape"], key
                    read += 1
        assert without_numpy <= {"BF16", "F8_E4M3", "F8_E4M3FNUZ", "F8_E5M2", "F8_E5M2FNUZ"}, (
            without_numpy
        )
        print(f"read {read} tensors; not in NumPy: {', '.join(sorted(without_numpy)) or 'none'}")
        assert read >= self.least_read, read


def key_of(part):
    if part["rank_local"] is None:
        return part["name"] + ("@" if part["name"] == "__metadata__" else "")
    key = f"{part['name']}@rank{part['rank_local']}"
    return key + "@" if key == "own@rank1" else key  # A tensor of rank 1 has that very name.


def content_of(part):
    """The bytes of a part, cut out of the whole tensor."""
    size, _ = DTYPES[part["dtype"]]
    i = np.arange(math.prod(part["shape"]) * size, dtype=np.uint64)
    whole = np.uint64(part["seed"]) + np.uint64(31) * i + i // np.uint64(256)
    whole = (whole & np.uint64(1 if part["dtype"] == "bool" else 255)).astype(np.uint8)
    box = tuple(slice(o, o + n) for o, n in zip(part["offsets"], part["sizes"]))
    return whole.reshape(part["shape"] + [size])[box].tobytes()


def header_form(part):
    """Type, shape and offsets as the header has them."""
    size, header_dtype = DTYPES[part["dtype"]]
    if header_dtype is None:
        return "U8", part["sizes"] + [size], part["offsets"] + [0]
    return header_dtype, part["sizes"], part["offsets"]


class Sample(Shards):
    def __init__(self, folder):
        super().__init__(folder)
        self.parts = json.loads((folder / "expected.json").read_text("utf-8"))
        self.by_name = {shard.path.name: shard for shard in self.shards}

    def case_one_file_per_further_chunk_and_none_for_a_rank_without_data(self):
        names = [f"shard-0000{r}-of-00004.safetensors" for r in ("0", "0.1", "1", "2")]
        assert sorted(self.by_name) == sorted(names), sorted(self.by_name)

    def case_every_part_is_named_and_nothing_else(self):
        named = {(p["file"], key_of(p)) for p in self.parts}
        assert len(named) == len(self.parts)
        named |= {(f"shard-0000{r}-of-00004.safetensors", k) for k, (r, _, _) in EMPTY.items()}
        assert named == {(f, k) for f, shard in self.by_name.items() for k in shard.entries}

    def case_header_and_bytes_of_every_part_are_right(self):
        for part in self.parts:
            shard, key = self.by_name[part["file"]], key_of(part)
            dtype, shape, offsets = header_form(part)
            entry = shard.entries[key]
            assert (entry["dtype"], entry["shape"]) == (dtype, shape), (key, entry)
            assert shard.sharding[key]["saved_offsets"] == offsets, key
            begin, end = entry["data_offsets"]
            assert begin == part["begin"], key
            assert shard.data[begin:end] == content_of(part), key

    def case_elements_are_aligned(self):
        for part in self.parts:
            assert part["begin"] % DTYPES[part["dtype"]][0] == 0, part

    def case_tensors_without_elements_have_one_entry(self):
        for key, (rank, dtype, shape) in EMPTY.items():
            found = [(f, s.entries[key]) for f, s in self.by_name.items() if key in s.entries]
            assert len(found) == 1, (key, found)
            file, entry = found[0]
            assert file == f"shard-0000{rank}-of-00004.safetensors", (key, file)
            assert (entry["dtype"], entry["shape"]) == (dtype, shape), (key, entry)

    def case_shards_of_a_name_make_up_its_shape(self):
        shapes = {}
        for shard in self.shards:
            for key, entry in shard.entries.items():
                ends = [o + n for o, n in zip(shard.sharding[key]["saved_offsets"], entry["shape"])]
                shapes[key] = [max(a, b) for a, b in zip(shapes.get(key, ends), ends)]
        for part in self.parts:
            size, header_dtype = DTYPES[part["dtype"]]
            shape = part["shape"] + ([] if header_dtype else [size])
            assert shapes[key_of(part)] == shape, key_of(part)


def splitmix64(x):
    mask = (1 << 64) - 1
    x = (x + 0x9E3779B97F4A7C15) & mask
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & mask
    return x ^ x >> 31


def words(seed_text, count):
    """The first bytes of a tensor of the trainer's own."""
    seed = 0xCBF29CE484222325
    for byte in seed_text.encode():
        seed = ((seed ^ byte) * 0x100000001B3) % (1 << 64)
    made = b"".join(
        splitmix64((seed + i) % (1 << 64)).to_bytes(8, "little") for i in range((count + 7) // 8)
    )
    return made[:count]


class Model(Shards):
    def __init__(self, folder, model, step, ranks):
        super().__init__(folder)
        self.model, self.step, self.ranks = File(model), step, ranks
        self.least_read = len(self.model.entries) + 1

    def whole(self, key, dtype, shape):
        """Puts the parts of a tensor together; each element must come exactly once."""
        size = SIZES[dtype]
        whole = np.zeros(shape + [size], np.uint8)
        times = np.zeros(shape, np.int64)
        for shard in self.shards:
            if key not in shard.entries:
                continue
            entry = shard.entries[key]
            assert entry["dtype"] == dtype, (key, entry)
            offsets = shard.sharding[key]["saved_offsets"]
            box = tuple(slice(o, o + n) for o, n in zip(offsets, entry["shape"]))
            part = np.frombuffer(shard.bytes_of(key), np.uint8)
            whole[box] = part.reshape(entry["shape"] + [size])
            times[box] += 1
        assert (times == 1).all(), f"{key}: some elements come {times.min()} to {times.max()} times"
        return whole.tobytes()

    def case_every_rank_with_data_has_a_shard(self):
        names = [s.path.name for s in self.shards]
        wanted = [f"shard-{r:05}-of-{self.ranks:05}.safetensors" for r in range(self.ranks)]
        assert names == wanted, names

    def case_the_parts_make_up_the_model_as_it_was_at_that_step(self):
        for key, entry in self.model.entries.items():
            got = self.whole(key, entry["dtype"], entry["shape"])
            then = np.frombuffer(self.model.bytes_of(key), np.uint8) + np.uint8(self.step % 256)
            assert got == then.tobytes(), key

    def case_the_parts_make_up_a_tensor_that_is_split_unevenly(self):
        got = self.whole(ROWS, "F32", [7, 3])
        assert got == words(f"{ROWS}|{self.step}", 7 * 3 * 4)

    def case_each_rank_has_its_own_tensor(self):
        for rank, shard in enumerate(self.shards):
            keys = [key for key in shard.entries if key.startswith("mine")]
            assert len(keys) == 1, (shard.path, keys)
            assert shard.entries[keys[0]]["shape"] == [5]
            assert shard.bytes_of(keys[0]) == words(f"mine|{self.step}|{rank}", 5)


def main():
    kind, folder, *more = sys.argv[1:]
    if kind == "sample":
        shards = Sample(pathlib.Path(folder))
    else:
        model, step, ranks = more
        shards = Model(pathlib.Path(folder), pathlib.Path(model), int(step), int(ranks))
    failed = 0
    for name in [n for n in dir(shards) if n.startswith("case_")]:
        try:
            getattr(shards, name)()
            print("ok", name.removeprefix("case_"))
        except Exception:
            traceback.print_exc(file=sys.stdout)
            print("not ok", name.removeprefix("case_"))
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
