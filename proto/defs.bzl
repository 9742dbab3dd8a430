"""C++ from protobuf files, by the distribution's protoc."""

def ckptd_proto_library(name, src, deps = [], grpc = False, visibility = None):
    """A cc_library of the messages of one file, and "<name>_grpc" of its services.

    Protos import each other, and C++ includes the result, by the path from the top of the tree:
    "proto/ckptd/v1/types.proto", "proto/ckptd/v1/types.pb.h", "proto/ckptd/v1/types.grpc.pb.h".

    Args:
      name: of the library with the messages, which needs no gRPC.
      src: the file, relative to this package.
      deps: the ckptd_proto_library targets of the imported files.
      grpc: whether the file has services.
      visibility: of the libraries.
    """
    stem = src[:-len(".proto")]
    native.filegroup(
        name = name + "_proto",
        srcs = [src] + [dep + "_proto" for dep in deps],
        visibility = visibility,
    )
    native.genrule(
        name = name + "_cc",
        srcs = [src, ":" + name + "_proto"],
        outs = [stem + ".pb.h", stem + ".pb.cc"],
        cmd = "/usr/bin/protoc -I. --cpp_out=$(GENDIR) $(location %s)" % src,
    )
    native.cc_library(
        name = name,
        srcs = [stem + ".pb.cc"],
        hdrs = [stem + ".pb.h"],
        copts = ["-w"],
        visibility = visibility,
        deps = ["//:protobuf"] + deps,
    )
    if grpc:
        native.genrule(
            name = name + "_grpc_cc",
            srcs = [src, ":" + name + "_proto"],
            outs = [stem + ".grpc.pb.h", stem + ".grpc.pb.cc"],
            cmd = ("/usr/bin/protoc -I. --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin " +
                   "--grpc_out=$(GENDIR) $(location %s)") % src,
        )
        native.cc_library(
            name = name + "_grpc",
            srcs = [stem + ".grpc.pb.cc"],
            hdrs = [stem + ".grpc.pb.h"],
            copts = ["-w"],
            visibility = visibility,
            deps = [
                ":" + name,
                "//:grpc",
            ],
        )
