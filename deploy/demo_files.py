"""What the demo asks of files: reads shards with the reference safetensors library, knows no ckptd.

    demo_files.py memcpy BYTES                        seconds of one memcpy (median of several)
    demo_files.py model MODEL                         one line that describes it
    demo_files.py tensor-at SHARD OFFSET              the tensor that has this byte of the file
    demo_files.py compare MODEL RANKS GENERATED FOLDER ID...

`compare` reads every shard of the checkpoints FOLDER/ID, ID being step-<S>, and compares every
byte with what the trainers must have had at step S: of the model, the file's byte + S modulo 256;
of each tensor in GENERATED (NAME:BYTES[:local], separated by spaces) the words that its name, the
step and for a local one the rank give. It prints one line for each checkpoint, `ok ID TEXT` or `not
ok ID TEXT`; exit code 1 if one is not ok.
"""

import json
import math
import pathlib
import statistics
import sys
import time

import numpy as np
import safetensors

U64 = np.uint64


def read_header(path):
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        return json.loads(file.read(length)), 8 + length


def fnv1a64(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def generated_bytes(name, step, rank, size):
    """64-bit word i is splitmix64(fnv1a64("NAME|STEP[|RANK]") + i)."""
    seed = fnv1a64(f"{name}|{step}" + ("" if rank is None else f"|{rank}"))
    x = np.arange((size + 7) // 8, dtype=U64) + U64(seed) + U64(0x9E3779B97F4A7C15)
    x = (x ^ x >> U64(30)) * U64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> U64(27)) * U64(0x94D049BB133111EB)
    return (x ^ x >> U64(31)).astype("<u8").view(np.uint8)[:size]


class Truth:
    """The tensors that a checkpoint must hold, by the names that they have in shards."""

    def __init__(self, model, ranks, generated):
        header, self.start = read_header(model)
        header.pop("__metadata__", None)
        self.model = np.memmap(model, np.uint8, "r")
        self.entries = header
        self.generated = {}
        for text in generated.split():
            name, size, *local = text.split(":")
            for rank in range(ranks) if local else [None]:
                key = name if rank is None else f"{name}@rank{rank}"
                self.generated[key] = (name, rank, int(size))

    def names(self):
        return [*self.entries, *self.generated]

    def shape(self, key):
        return [self.generated[key][2]] if key in self.generated else self.entries[key]["shape"]

    def bytes_at(self, key, step):
        if key in self.generated:
            name, rank, size = self.generated[key]
            return generated_bytes(name, step, rank, size)
        begin, end = self.entries[key]["data_offsets"]
        return self.model[self.start + begin : self.start + end] + np.uint8(step % 256)


class Part:
    """One entry of one shard, as the reference library hands it out."""

    def __init__(self, shard, entry, sharding):
        self.shard, self.shape, self.data = shard, entry["shape"], entry["data"]
        self.offsets = sharding["saved_offsets"]


def read_parts(folder):
    parts = {}
    shards = sorted(folder.glob("*.safetensors"))
    for path in shards:
        with safetensors.safe_open(path, framework="np") as shard:
            sharding = json.loads(shard.metadata()["DCP_SHARDING_INFO"])
            names = set(shard.keys())
        entries = safetensors.deserialize(path.read_bytes())
        assert {name for name, _ in entries} == names == set(sharding), path
        for name, entry in entries:
            parts.setdefault(name, []).append(Part(path.name, entry, sharding[name]))
    return parts, len(shards)


def difference(truth, key, step, parts):
    """What is wrong with a tensor, or None."""
    shape = truth.shape(key)
    want = truth.bytes_at(key, step)
    rows = math.prod(shape)
    if not parts:
        return "is in no shard"
    if not rows:
        return None
    size = want.size // rows
    want = want.reshape([*shape, size])
    covered = np.zeros(shape, bool)
    for part in parts:
        sizes, offsets = part.shape[: len(shape)], part.offsets[: len(shape)]
        box = tuple(slice(o, o + n) for o, n in zip(offsets, sizes))
        got = np.frombuffer(part.data, np.uint8)
        if got.size != math.prod(sizes) * size or covered[box].shape != tuple(sizes):
            return f"has another size in {part.shard}"
        wrong = np.flatnonzero(want[box].reshape(-1) != got)
        if wrong.size:
            return f"differs in {wrong.size} bytes in {part.shard}"
        covered[box] = True
    return None if covered.all() else "is not stored completely"


def compare(model, ranks, generated, folder, *ids):
    truth = Truth(model, int(ranks), generated)
    all_ok = True
    for checkpoint in ids:
        step = int(checkpoint.removeprefix("step-"))
        wrong = None
        try:
            parts, files = read_parts(pathlib.Path(folder) / checkpoint)
            compared = sum(len(part.data) for entries in parts.values() for part in entries)
            if extra := set(parts) - set(truth.names()):
                wrong = f"holds {min(extra)}, which nobody saved"
            for key in truth.names():
                if found := difference(truth, key, step, parts.get(key)):
                    wrong = f"{key} {found}"
                    break
        except Exception as error:  # What is broken is one failed comparison, whatever the reason.
            wrong = f"cannot be read: {error!r}"
        all_ok &= wrong is None
        print(
            f"not ok {checkpoint} {wrong}"
            if wrong
            else f"ok {checkpoint} {files} shards, {len(truth.names())} tensors, {compared} bytes"
        )
    return 0 if all_ok else 1


def tensor_at(shard, offset):
    header, start = read_header(shard)
    header.pop("__metadata__")
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        if start + begin <= int(offset) < start + end:
            print(name)
            return 0
    return 1


def describe_model(model):
    header, start = read_header(model)
    header.pop("__metadata__", None)
    types = sorted({entry["dtype"] for entry in header.values()})
    rows = max((entry["shape"] for entry in header.values()), key=math.prod, default=[])
    print(f"{len(header)} tensors, {' and '.join(types)}, the largest {rows}")
    return 0


def memcpy(size):
    source, target = np.ones(int(size), np.uint8), np.zeros(int(size), np.uint8)
    seconds = []
    for _ in range(9):
        begin = time.perf_counter()
        np.copyto(target, source)
        seconds.append(time.perf_counter() - begin)
    print(f"{statistics.median(seconds):.6f}")
    return 0


COMMANDS = {"memcpy": memcpy, "model": describe_model, "tensor-at": tensor_at, "compare": compare}

if __name__ == "__main__":
    sys.exit(COMMANDS[sys.argv[1]](*sys.argv[2:]))
