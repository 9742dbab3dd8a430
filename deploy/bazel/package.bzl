"""The release archive: built with -c opt and static libraries, whatever the command line says."""

def _no_provider(_ctx):
    return []

static_link = rule(
    implementation = _no_provider,
    doc = "A flag: whether the system's libraries become part of the executables.",
    build_setting = config.bool(flag = True),
)

def _release_impl(_settings, _attr):
    return {
        "//command_line_option:compilation_mode": "opt",
        "//deploy/bazel:static_link": True,
        "//command_line_option:platform_suffix": "-package",
    }

_release = transition(
    implementation = _release_impl,
    inputs = [],
    outputs = [
        "//command_line_option:compilation_mode",
        "//deploy/bazel:static_link",
        "//command_line_option:platform_suffix",
    ],
)

def _archives(libraries):
    """The static archives of the libraries and of all that they depend on."""
    found = {}
    for library in libraries:
        for linker_input in library[CcInfo].linking_context.linker_inputs.to_list():
            for item in linker_input.libraries:
                archive = item.static_library or item.pic_static_library
                if archive:
                    found[archive.path] = archive
    return found.values()

def _package_impl(ctx):
    output = ctx.actions.declare_file("ckptd-%s.tar.gz" % ctx.attr.suffix)
    archives = _archives(ctx.attr.libraries)
    headers = depset(transitive = [
        library[CcInfo].compilation_context.headers
        for library in ctx.attr.libraries
    ])
    arguments = ctx.actions.args()
    arguments.add(output)
    arguments.add_all(["--binaries"] + ctx.files.binaries)
    arguments.add_all(["--documents"] + ctx.files.documents)
    arguments.add_all(["--public"] + ctx.files.public_headers)
    arguments.add_all(["--archives"] + archives)
    ctx.actions.run(
        executable = ctx.executable._make,
        arguments = [arguments],
        inputs = depset(
            archives + ctx.files.binaries + ctx.files.documents + ctx.files.public_headers,
            transitive = [headers],
        ),
        outputs = [output],
        mnemonic = "Package",
        use_default_shell_env = True,
    )
    return [DefaultInfo(
        files = depset([output]),
        runfiles = ctx.runfiles(files = [output]),
    )]

package = rule(
    implementation = _package_impl,
    doc = "Packs executables, one archive of the libraries with all that they need, and headers.",
    cfg = _release,
    attrs = {
        "binaries": attr.label_list(doc = "Executables, for bin/."),
        "documents": attr.label_list(allow_files = True, doc = "Files for share/doc/ckptd/."),
        "libraries": attr.label_list(providers = [CcInfo], doc = "What lib/ offers."),
        "public_headers": attr.label_list(
            allow_files = True,
            doc = "Headers for include/; those that they include come along.",
        ),
        "suffix": attr.string(doc = "What the file's name says of the platform."),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
        "_make": attr.label(default = "//deploy:make_package", executable = True, cfg = "host"),
    },
)
