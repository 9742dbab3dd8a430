#!/usr/bin/env bash
# Packs a release: make_package.sh OUT.tar.gz --binaries F... --documents F... --public HEADER...
# --archives A... ; run by //deploy:package.
set -euo pipefail
export LC_ALL=C

# Archives of the distribution that the client library needs, in no order: they go into one.
readonly system_libraries=(grpc++ grpc gpr address_sorting upb re2 cares ssl crypto z protobuf)
# The packages whose code is in the executables and in the client library.
readonly system_packages=(libabsl-dev libc-ares-dev libcli11-dev libfmt-dev libgrpc++-dev libisal2
  libprotobuf-dev libre2-dev libspdlog-dev libssl-dev libtomlplusplus-dev liburing-dev
  nlohmann-json3-dev zlib1g-dev)

output=$1
shift
list=
binaries=() documents=() public=() archives=()
for argument in "$@"; do
  case $argument in
    --*) list=${argument#--} ;;
    *) declare -n items=$list && items+=("$argument") ;;
  esac
done

version=$(sed -n 's/.*kVersion\[\] = "\(.*\)";/\1/p' proto/ckptd/version.h)
name="ckptd-$version-linux-x86_64"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree="$work/$name"
mkdir -p "$tree"/{bin,lib/pkgconfig,include,share/doc/ckptd/third-party}

install -m 0755 "${binaries[@]}" "$tree/bin"
strip "$tree"/bin/*
install -m 0644 "${documents[@]}" "$tree/share/doc/ckptd"

# The headers that the public ones include, as the compiler sees them.
g++ -std=c++20 -I. -x c++ -MM "${public[@]}" | tr -d '\\' | tr ' ' '\n' |
  grep -E '^(client|storage|proto)/.*\.h$' | sort -u | while read -r header; do
  install -D -m 0644 "$header" "$tree/include/$header"
done

# One archive: who links it needs no other but ISA-L's shared library, which lies beside it.
{
  echo "create $tree/lib/libckptd_client.a"
  printf 'addlib %s\n' "${archives[@]}"
  for library in "${system_libraries[@]}"; do
    echo "addlib $(g++ -print-file-name="lib$library.a")"
  done
  for library in "$(dirname "$(g++ -print-file-name=libabsl_base.a)")"/libabsl_*.a; do
    echo "addlib $library"
  done
  echo save
  echo end
} | ar -M
install -m 0644 "$(realpath "$(g++ -print-file-name=libisal.so)")" "$tree/lib/libisal.so.2"
ln -s libisal.so.2 "$tree/lib/libisal.so"
cat >"$tree/lib/pkgconfig/ckptd-client.pc" <<PC
prefix=\${pcfiledir}/../..
libdir=\${prefix}/lib

Name: ckptd-client
Description: Hands a training rank's state to the checkpoint daemon ckptd
Version: $version
Cflags: -std=c++20 -I\${prefix}/include
Libs: -L\${libdir} -lckptd_client -lisal -ldl -pthread -Wl,-rpath,\${libdir}
PC

for package in "${system_packages[@]}"; do
  cp "/usr/share/doc/$package/copyright" "$tree/share/doc/ckptd/third-party/$package"
done

# The same input gives the same bytes.
find "$tree" -type d -exec chmod 0755 {} +
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf - "$name" |
  gzip -9n >"$output"
