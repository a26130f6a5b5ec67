#!/bin/sh
# Makes an image that holds the program and the libraries that it loads. Needs buildah, and no network.
# usage: build.sh AMALGAM IMAGE
set -eu
program=$(realpath "$1"); image=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/root/bin" "$work/root/tmp"
chmod 1777 "$work/root/tmp"
strip -o "$work/root/bin/amalgam" "$program"
# The loader and the libraries, each at the path under which it is asked for.
ldd "$program" 2>/dev/null | grep -o '/[^ ]*' | while read -r library; do
    mkdir -p "$work/root$(dirname "$library")"
    cp -L "$library" "$work/root$library"
done
container=$(buildah from scratch)
buildah copy -q "$container" "$work/root" /
buildah config --entrypoint '["/bin/amalgam"]' --workingdir /tmp "$container"
buildah commit -q --rm "$container" "$image"
