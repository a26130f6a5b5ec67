#!/bin/sh
# Runs scenes/small/drop.toml with its water behind a real sshd in another network namespace. Needs root, openssh-server.
# usage: try.sh AMALGAM SCENE
set -eu
amalgam=$(realpath "$1"); scene=$(realpath "$2")
work=$(mktemp -d); near=am-near-$$; far=am-far-$$
end() {
    [ -s "$work/sshd.pid" ] && kill "$(cat "$work/sshd.pid")"
    ip netns del $near; ip netns del $far
    rm -rf "$work"
}
trap end EXIT
chmod 755 "$work"
ip netns add $near; ip netns add $far
ip -n $near link add eth0 type veth peer name eth0 netns $far
ip -n $near addr add 10.78.0.1/24 dev eth0; ip -n $far addr add 10.78.0.2/24 dev eth0
for host in $near $far; do ip -n $host link set lo up; ip -n $host link set eth0 up; done
ssh-keygen -q -t ed25519 -N '' -f "$work/host"; ssh-keygen -q -t ed25519 -N '' -f "$work/user"
cp "$work/user.pub" "$work/authorized"
mkdir -p /run/sshd
ip netns exec $far "$(command -v sshd)" -f /dev/null -h "$work/host" -p 22 -o PidFile="$work/sshd.pid" \
    -o AuthorizedKeysFile="$work/authorized" -o StrictModes=no -o UsePAM=no -o PermitRootLogin=yes
"$amalgam" certs "$work/certs" --hosts 10.78.0.1,10.78.0.2
cat > "$work/where.toml" <<FILE
tls = "certs"
[participants.water]
run = "ssh"
host = "10.78.0.2"
threads = 1
program = "$amalgam"
launcher_options = ["-i", "$work/user", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
FILE
cd "$work"
"$amalgam" run "$scene" --quiet --frames 2 --out here --transport in-process
ip netns exec $near "$amalgam" launch "$scene" --quiet --frames 2 --out there --deployment where.toml
grep -h state_hash here/summary.json there/summary.json
[ "$(grep state_hash here/summary.json)" = "$(grep state_hash there/summary.json)" ] && echo "the same bits"
sleep 1
pids=$(ip netns pids $far | tr '\n' ' ')
echo "left in the other namespace: $(ps -o comm= -p "$(echo $pids | tr ' ' ,)" | tr '\n' ' ')"
