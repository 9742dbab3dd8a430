"""Reads the shards of a checkpoint of the trainer's with the reference safetensors library.

    read_shards.py FOLDER MODEL STEP RANKS

The state is the MODEL's, each byte of which grows by one in a step, the float32 tensor `rows` of
7 x 3, split over the ranks, and the bool tensor `mine` of 5, which each rank has of its own. Prints
`ok NAME` or `not ok NAME` for each case; exit code 1 if one failed.
"""

import json
import pathlib
import sys
import traceback

import numpy as np
import safetensors

ROWS = "rows"
SIZES = {"F32": 4, "F64": 8, "I64": 8, "I32": 4, "F16": 2, "BF16": 2, "U8": 1, "BOOL": 1}


class File:
    """A safetensors file, read by hand."""

    def __init__(self, path):
        content = path.read_bytes()
        self.path = path
        self.header_bytes = 8 + int.from_bytes(content[:8], "little")
        self.entries = json.loads(content[8 : self.header_bytes])
        self.data = content[self.header_bytes :]
        self.metadata = self.entries.pop("__metadata__", {})

    def bytes_of(self, key):
        begin, end = self.entries[key]["data_offsets"]
        return self.data[begin:end]


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


class Checkpoint:
    def __init__(self, folder, model, step, ranks):
        self.folder, self.step, self.ranks = folder, step, ranks
        self.model = File(model)
        self.shards = [File(path) for path in sorted(folder.glob("*.safetensors"))]

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
            offsets = self.sharding(shard)[key]["saved_offsets"]
            box = tuple(slice(o, o + n) for o, n in zip(offsets, entry["shape"]))
            part = np.frombuffer(shard.bytes_of(key), np.uint8)
            whole[box] = part.reshape(entry["shape"] + [size])
            times[box] += 1
        assert (times == 1).all(), f"{key}: some elements come {times.min()} to {times.max()} times"
        return whole.tobytes()

    @staticmethod
    def sharding(shard):
        return json.loads(shard.metadata["DCP_SHARDING_INFO"])

    def case_every_rank_with_data_has_a_shard(self):
        names = [s.path.name for s in self.shards]
        wanted = [f"shard-{r:05}-of-{self.ranks:05}.safetensors" for r in range(self.ranks)]
        assert names == wanted, names

    def case_data_starts_at_a_multiple_of_4096_and_is_covered_exactly(self):
        for shard in self.shards:
            assert shard.header_bytes % 4096 == 0, shard.path
            end = 0
            for entry in sorted(shard.entries.values(), key=lambda e: e["data_offsets"]):
                assert entry["data_offsets"][0] == end, (shard.path, entry)
                end = entry["data_offsets"][1]
            assert end == len(shard.data), shard.path

    def case_every_entry_has_its_offsets_in_the_sharding_info(self):
        for shard in self.shards:
            assert shard.metadata["DCP_VERSION"], shard.path
            sharding = self.sharding(shard)
            assert set(sharding) == set(shard.entries), shard.path
            for key, entry in shard.entries.items():
                assert len(sharding[key]["saved_offsets"]) == len(entry["shape"]), key

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

    def case_the_reference_library_opens_every_shard_and_reads_every_tensor(self):
        read = 0
        for shard in self.shards:
            with safetensors.safe_open(shard.path, framework="np") as opened:
                assert set(opened.keys()) == set(shard.entries), shard.path
                assert opened.metadata() == shard.metadata, shard.path
                for key in opened.keys():
                    array = opened.get_tensor(key)
                    assert list(array.shape) == shard.entries[key]["shape"], key
                    assert array.tobytes() == shard.bytes_of(key), key
                    read += 1
        print(f"read {read} tensors of {len(self.shards)} shards")
        assert read > len(self.model.entries)


def main():
    folder, model, step, ranks = sys.argv[1:]
    checkpoint = Checkpoint(pathlib.Path(folder), pathlib.Path(model), int(step), int(ranks))
    failed = 0
    for name in [n for n in dir(checkpoint) if n.startswith("case_")]:
        try:
            getattr(checkpoint, name)()
            print("ok", name.removeprefix("case_"))
        except Exception:
            traceback.print_exc(file=sys.stdout)
            print("not ok", name.removeprefix("case_"))
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
