#!/bin/sh
# Tries what build.sh made, each in a root file system with nothing else in it. Needs no rights beyond a user's.
# usage: deploy/release/try.sh FOLDER
set -eu
folder=$(realpath "$1")
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# within ROOT PROGRAM SCENE: computes a scene where only ROOT, /proc, /dev/null and /tmp are.
within() {
    mkdir -p "$1/proc" "$1/tmp" "$1/dev"
    : > "$1/dev/null"
    unshare --user --map-root-user --mount --pid --fork sh -eu -c '
        mount -t proc proc "$1/proc"
        mount -t tmpfs tmpfs "$1/tmp"
        mount --bind /dev/null "$1/dev/null"
        exec chroot "$1" "$2" run "$3" --out /tmp/out
    ' within "$1" "$2" "$3" | grep -E "simulated|results in"
}

archive=$(ls "$folder"/amalgam-*-linux.tar.gz)
echo "== $(basename "$archive")"
mkdir "$work/archive"
tar -C "$work/archive" --strip-components=1 -xzf "$archive"
within "$work/archive" /amalgam /scenes/small/drop.toml

for package in "$folder"/amalgam_*.deb; do
    [ -e "$package" ] || continue
    echo "== $(basename "$package")"
    dpkg-deb -x "$package" "$work/package"
    within "$work/package" /usr/bin/amalgam /usr/share/amalgam/scenes/small/drop.toml
done

# Layers of an image are its only blobs that are archives; the image has no scenes.
for image in "$folder"/amalgam-*.oci.tar; do
    [ -e "$image" ] || continue
    echo "== $(basename "$image")"
    mkdir "$work/blobs" "$work/image"
    tar -C "$work/blobs" -xf "$image"
    for blob in "$work"/blobs/blobs/sha256/*; do
        if tar -tf "$blob" >/dev/null 2>&1; then tar -C "$work/image" -xf "$blob"; fi
    done
    cp scenes/small/drop.toml "$work/image/drop.toml"
    within "$work/image" /bin/amalgam /drop.toml
done
