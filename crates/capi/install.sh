#!/bin/sh
# Builds the C library and installs it: static and shared, with its headers and its pkg-config file.
#
#     PREFIX=/usr LIBDIR=/usr/lib/x86_64-linux-gnu DESTDIR=/tmp/package crates/capi/install.sh
#
# PREFIX is where it will be (/usr/local), LIBDIR where its libraries will be (PREFIX/lib), DESTDIR is put before both while installing.
# BUILD=no installs what was built before; CARGOFLAGS are passed to cargo (--frozen, say). CARGO_TARGET_DIR and CARGO_BUILD_TARGET
# mean what they mean to cargo.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
prefix=${PREFIX:-/usr/local}
libdir=${LIBDIR:-$prefix/lib}
to=${DESTDIR:-}
case $prefix$libdir in
*[!A-Za-z0-9/._+-]*) echo "install.sh: PREFIX and LIBDIR may have letters, digits and /._+- only" >&2 && exit 1 ;;
esac
case $prefix:$libdir in
/*:/*) ;;
*) echo "install.sh: PREFIX and LIBDIR must begin with /" >&2 && exit 1 ;;
esac

# In a package of the crate alone there is no workspace around it.
root=$here/../..
grep -qs '^\[workspace.package\]' "$root/Cargo.toml" || root=$here
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml" | head -1)
abi=$(sed -n 's/^#define INKSTONE_ABI_VERSION \([0-9]*\)$/\1/p' "$here/include/inkstone.h")
target=${CARGO_TARGET_DIR:-$root/target}
built=$target/${CARGO_BUILD_TARGET:+$CARGO_BUILD_TARGET/}release
if [ "${BUILD:-yes}" != no ]; then
    # shellcheck disable=SC2086 # CARGOFLAGS are several words.
    (cd "$here" && cargo build --release --locked ${CARGOFLAGS:-})
fi

# What the standard library of Rust needs on Linux when it is linked statically.
system="-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc"
install -d "$to$libdir/pkgconfig" "$to$prefix/include"
install -m 644 "$here"/include/* "$to$prefix/include/"
install -m 644 "$built/libinkstone_capi.a" "$to$libdir/libinkstone.a"
install -m 755 "$built/libinkstone_capi.so" "$to$libdir/libinkstone.so.$abi.$version"
ln -sf "libinkstone.so.$abi.$version" "$to$libdir/libinkstone.so.$abi"
ln -sf "libinkstone.so.$abi" "$to$libdir/libinkstone.so"
sed -e "s|@PREFIX@|$prefix|; s|@LIBDIR@|$libdir|; s|@VERSION@|$version|; s|@SYSTEM@|$system|" \
    "$here/inkstone.pc.in" >"$to$libdir/pkgconfig/inkstone.pc"
chmod 644 "$to$libdir/pkgconfig/inkstone.pc"
echo "installed inkstone $version (ABI $abi) below $to$prefix"
