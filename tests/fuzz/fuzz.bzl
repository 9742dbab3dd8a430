"""One fuzz target, built twice: as a test of its corpus, and as a libFuzzer program."""

def fuzz_target(name, src, deps):
    """Makes NAME_test, which any compiler builds, and NAME_fuzz, which needs --config=fuzz.

    Args:
      name: also that of the folder with its corpus, below corpus/.
      src: defines LLVMFuzzerTestOneInput.
      deps: of src; the target's properties (properties.h) are among them.
    """
    native.cc_library(
        name = name + "_target",
        testonly = True,
        srcs = [src],
        deps = deps + [":properties"],
        alwayslink = True,
    )
    native.cc_test(
        name = name + "_test",
        size = "medium",
        args = [native.package_name() + "/corpus/" + name],
        data = native.glob(["corpus/" + name + "/*"]),
        deps = [
            ":corpus_test",
            ":" + name + "_target",
        ],
    )
    native.cc_binary(
        name = name + "_fuzz",
        testonly = True,
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual"],
        deps = [":" + name + "_target"],
    )
