#!/bin/sh
# Builds what people without a compiler use: a program that needs no library, an archive with scenes, a Debian package
# and, where buildah is installed, a container image.
# usage: deploy/release/build.sh FOLDER
set -eu
cd "$(dirname "$0")/../.."
mkdir -p "$1"
folder=$(realpath "$1")
triple=$(rustc -vV | sed -n 's/^host: //p')
machine=${triple%%-*}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
name=amalgam-$version-$machine-linux
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# With a target named, the setting does not reach what runs while building.
RUSTFLAGS="-C target-feature=+crt-static" cargo build --release --target "$triple" --target-dir target/static -p amalgam --bin amalgam
strip -o "$work/program" "target/static/$triple/release/amalgam"
if ldd "$work/program" 2>/dev/null | grep -q /; then
    echo "the program still loads libraries: does $triple have a static C library?" >&2
    exit 1
fi
"$work/program" manual "$work" >/dev/null

archive=$work/$name
mkdir -p "$archive"
cp "$work/program" "$archive/amalgam"
cp -r README.md CHANGELOG.md scenes docs "$work/man1" "$work/completions" "$archive"
for license in LICENSE*; do
    cp "$license" "$archive"
done
tar -C "$work" --owner=0 --group=0 --sort=name --mtime=@0 -czf "$folder/$name.tar.gz" "$name"

if command -v dpkg-deb >/dev/null; then
    root=$work/deb
    mkdir -p "$root/DEBIAN" "$root/usr/bin" "$root/usr/share/man/man1" "$root/usr/share/bash-completion/completions" \
        "$root/usr/share/zsh/vendor-completions" "$root/usr/share/fish/vendor_completions.d" "$root/usr/share/doc/amalgam" \
        "$root/usr/share/amalgam"
    cp "$work/program" "$root/usr/bin/amalgam"
    cp "$work"/man1/* "$root/usr/share/man/man1"
    gzip -9n "$root"/usr/share/man/man1/*
    cp "$work/completions/amalgam.bash" "$root/usr/share/bash-completion/completions/amalgam"
    cp "$work/completions/_amalgam" "$root/usr/share/zsh/vendor-completions"
    cp "$work/completions/amalgam.fish" "$root/usr/share/fish/vendor_completions.d"
    cp README.md LICENSE* "$root/usr/share/doc/amalgam"
    cp -r scenes "$root/usr/share/amalgam"
    cat > "$root/DEBIAN/control" <<CONTROL
Package: amalgam
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: The Amalgam authors <amalgam@localhost>
Section: science
Priority: optional
Description: couples particle simulations that were never made for each other
 Solids and fluids run as services of their own, on one machine or several.
 Where their particles touch, a coordinator moves them as one.
CONTROL
    dpkg-deb --root-owner-group --build "$root" "$folder/amalgam_${version}_$(dpkg --print-architecture).deb" >/dev/null
fi

if command -v buildah >/dev/null; then
    deploy/container/build.sh "$work/program" "amalgam:$version"
    buildah push -q "amalgam:$version" "oci-archive:$folder/$name.oci.tar:amalgam:$version"
fi
ls -l "$folder"
