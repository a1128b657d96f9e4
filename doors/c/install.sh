#!/bin/sh
# Builds the C library and installs it: static and shared, with its headers, its pkg-config file and
# its CMake package.
#
#     doors/c/install.sh
#     PREFIX=/usr LIBDIR=/usr/lib/x86_64-linux-gnu DESTDIR=/tmp/package doors/c/install.sh
#     doors/c/install.sh uninstall
#
# PREFIX is where it will be (/usr/local), LIBDIR where its libraries will be (PREFIX/lib), DESTDIR
# is put before both while installing. BUILD=no installs what was built before; CARGOFLAGS are
# passed to cargo (--frozen, say). CARGO_TARGET_DIR and CARGO_BUILD_TARGET mean what they mean to
# cargo. `uninstall` removes what an installation of this version with the same PREFIX, LIBDIR and
# DESTDIR made.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
prefix=${PREFIX:-/usr/local}
libdir=${LIBDIR:-$prefix/lib}
to=${DESTDIR:-}
verb=${1:-install}
wrong() { echo "install.sh: $*" >&2 && exit 1; }
case $verb:$# in
install:0 | install:1 | uninstall:1) ;;
*) wrong "no argument, or the argument uninstall; PREFIX, LIBDIR and DESTDIR are variables" ;;
esac
case $prefix$libdir in
*[!A-Za-z0-9/._+-]*) wrong "PREFIX and LIBDIR may have letters, digits and /._+- only" ;;
esac
case $prefix:$libdir in /*:/*) ;; *) wrong "PREFIX and LIBDIR must begin with /" ;; esac

# In a package of the crate alone there is no workspace around it.
root=$here/../..
grep -qs '^\[workspace.package\]' "$root/Cargo.toml" || root=$here
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml" | head -1)
abi=$(sed -n 's/^#define INKSTONE_ABI_VERSION \([0-9]*\)$/\1/p' "$here/include/inkstone.h")
target=${CARGO_TARGET_DIR:-$root/target}
built=$target/${CARGO_BUILD_TARGET:+$CARGO_BUILD_TARGET/}release
if [ "$verb" = install ] && [ "${BUILD:-yes}" != no ]; then
    # shellcheck disable=SC2086 # CARGOFLAGS are several words.
    (cd "$here" && cargo build --release --locked ${CARGOFLAGS:-})
fi

# The way from the libraries to PREFIX, so that what is installed can be moved as a whole; none if
# they are not below it.
up=
case $libdir in
"$prefix"/*)
    below=${libdir#"$prefix"/}
    while [ -n "$below" ]; do
        case $below in */*) rest=${below#*/} ;; *) rest= ;; esac
        [ -z "${below%%/*}" ] || up=$up/..
        below=$rest
    done
    ;;
esac

# shellcheck disable=SC2016 # pkg-config and CMake know these variables.
if [ -n "$up" ]; then
    from_pc='${pcfiledir}/..'$up from_cmake='${CMAKE_CURRENT_LIST_DIR}/../..'$up
else
    from_pc=$prefix from_cmake=$prefix
fi

# Each file goes through one of these three, so that `uninstall` removes what was installed.
copy() { # copy MODE FILE PLACE
    if [ "$verb" = install ]; then install -D -m "$1" "$2" "$to$3"; else rm -f "$to$3"; fi
}
link() { # link NAME PLACE
    if [ "$verb" = install ]; then ln -sf "$1" "$to$2"; else rm -f "$to$2"; fi
}
fill() { # fill TEMPLATE PLACE PREFIX: PREFIX is how this file finds it
    if [ "$verb" = install ]; then
        install -d "$to$(dirname "$2")"
        sed -e "s|@PREFIX@|$3|; s|@VERSION@|$version|; s|@ABI@|$abi|" "$here/$1" >"$to$2"
        chmod 644 "$to$2"
    else
        rm -f "$to$2"
    fi
}
cmake=$libdir/cmake/inkstone
for header in inkstone.h inkstone.hpp; do
    copy 644 "$here/include/$header" "$prefix/include/$header"
done
copy 644 "$built/libinkstone_capi.a" "$libdir/libinkstone.a"
copy 755 "$built/libinkstone_capi.so" "$libdir/libinkstone.so.$abi.$version"
link "libinkstone.so.$abi.$version" "$libdir/libinkstone.so.$abi"
link "libinkstone.so.$abi" "$libdir/libinkstone.so"
fill inkstone.pc.in "$libdir/pkgconfig/inkstone.pc" "$from_pc"
fill inkstone-config.cmake.in "$cmake/inkstone-config.cmake" "$from_cmake"
fill inkstone-config-version.cmake.in "$cmake/inkstone-config-version.cmake" ""
if [ "$verb" = uninstall ]; then
    rmdir "$to$cmake" 2>/dev/null || true
    echo "removed inkstone $version (ABI $abi) below $to$prefix"
    exit 0
fi
echo "installed inkstone $version (ABI $abi) below $to$prefix"

# A program finds a shared library by the loader's list of them, which ldconfig writes, if the
# directory is one of the loader's.
[ -z "$to" ] || exit 0
PATH=$PATH:/usr/sbin:/sbin
if ldconfig -v -N -X 2>/dev/null | grep -q "^$libdir:"; then
    if [ "$(id -u)" = 0 ] && ldconfig; then exit 0; fi
    echo "Programs find libinkstone.so.$abi after root has run: ldconfig"
else
    echo "The loader does not look in $libdir: link programs with -Wl,-rpath,$libdir"
fi
