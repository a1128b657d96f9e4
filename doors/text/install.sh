#!/bin/sh
# Builds the library of the text log and installs it: static and shared, with its header and its
# pkg-config file. `install.sh uninstall` removes them. PREFIX, LIBDIR, DESTDIR, BUILD and
# CARGOFLAGS mean what they mean to doors/c/install.sh.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
prefix=${PREFIX:-/usr/local}
libdir=${LIBDIR:-$prefix/lib}
to=${DESTDIR:-}
root=$here/../..
grep -qs '^\[workspace.package\]' "$root/Cargo.toml" || root=$here
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml" | head -1)
built=${CARGO_TARGET_DIR:-$root/target}/${CARGO_BUILD_TARGET:+$CARGO_BUILD_TARGET/}release
soname=libinkstone_text.so.1
case ${1:-install} in
install) ;;
uninstall)
    rm -f "$to$prefix/include/inkstone_text.h" "$to$libdir"/libinkstone_text.* \
        "$to$libdir/pkgconfig/inkstone-text.pc"
    exit 0
    ;;
*) echo "install.sh: no argument, or the argument uninstall" >&2 && exit 1 ;;
esac
if [ "${BUILD:-yes}" != no ]; then
    # shellcheck disable=SC2086 # CARGOFLAGS are several words.
    (cd "$here" && cargo build --release --locked ${CARGOFLAGS:-})
fi
install -D -m 644 "$here/include/inkstone_text.h" "$to$prefix/include/inkstone_text.h"
install -D -m 644 "$built/libinkstone_text.a" "$to$libdir/libinkstone_text.a"
install -D -m 755 "$built/libinkstone_text.so" "$to$libdir/$soname.$version"
ln -sf "$soname.$version" "$to$libdir/$soname"
ln -sf "$soname" "$to$libdir/libinkstone_text.so"
install -d "$to$libdir/pkgconfig"
sed "s|@PREFIX@|$prefix|; s|@LIBDIR@|$libdir|; s|@VERSION@|$version|" \
    "$here/inkstone-text.pc.in" >"$to$libdir/pkgconfig/inkstone-text.pc"
echo "installed inkstone-text $version below $to$prefix"
[ -n "$to" ] || [ "$(id -u)" != 0 ] || PATH=$PATH:/usr/sbin:/sbin ldconfig || true
