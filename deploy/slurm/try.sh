#!/bin/sh
# Runs both jobs on two Slurm nodes in network namespaces of this machine, each with a host name of its own. Needs root, munge,
# slurmctld and slurmd; starts daemons of its own and ends them.
# usage: try.sh AMALGAM SCENE
set -eu
amalgam=$(realpath "$1"); scene=$(realpath "$2"); folder=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d); chmod 755 "$work"; pids=
end() {
    # Some have ended by themselves.
    kill $pids 2> /dev/null || true
    for host in n1 n2 hub; do ip netns del am-$host-$$ || true; done
    sed "/# amalgam $$/d" /etc/hosts > "$work/hosts.before" && cat "$work/hosts.before" > /etc/hosts
    [ "${KEEP:-}" ] || rm -rf "$work"
}
trap end EXIT
start() { # NAMESPACE HOSTNAME COMMAND...
    space=$1 name=$2; shift 2
    nsenter --net=/run/netns/$space unshare --uts sh -c "hostname $name; exec \"\$@\"" sh "$@" > "$work/$name.log" 2>&1 &
    pids="$pids $!"
}
hub=am-hub-$$
ip netns add $hub; ip -n $hub link set lo up
ip -n $hub link add br0 type bridge; ip -n $hub addr add 10.79.0.9/24 dev br0; ip -n $hub link set br0 up
for i in 1 2; do
    space=am-n$i-$$
    ip netns add $space
    ip -n $space link add eth0 type veth peer name v$i netns $hub
    ip -n $space addr add 10.79.0.$i/24 dev eth0
    ip -n $space link set eth0 up; ip -n $space link set lo up
    ip -n $hub link set v$i master br0; ip -n $hub link set v$i up
done
printf '10.79.0.1 n1 # amalgam %s\n10.79.0.2 n2 # amalgam %s\n10.79.0.9 hub # amalgam %s\n' $$ $$ $$ > "$work/hosts"
cp "$work/hosts" "$work/hosts.add"; cat "$work/hosts.add" >> /etc/hosts
mkdir -p "$work/munge" "$work/state" "$work/spool1" "$work/spool2"
dd if=/dev/urandom of="$work/munge/key" bs=1024 count=1 2> /dev/null; chmod 400 "$work/munge/key"
munged --force --foreground --key-file="$work/munge/key" --socket="$work/munge/socket" --pid-file="$work/munge/pid" \
    --log-file="$work/munge/log" --seed-file="$work/munge/seed" > /dev/null 2>&1 &
pids="$pids $!"
cat > "$work/slurm.conf" <<FILE
ClusterName=try
SlurmctldHost=hub(10.79.0.9)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
CryptoType=crypto/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd-%n.pid
SlurmctldPort=16817
SlurmdPort=16818
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
ReturnToService=2
SchedulerParameters=sched_interval=1,bf_interval=1
NodeName=n1 NodeAddr=10.79.0.1 CPUs=4
NodeName=n2 NodeAddr=10.79.0.2 CPUs=4
PartitionName=all Nodes=n1,n2 Default=YES OverSubscribe=YES
FILE
export SLURM_CONF="$work/slurm.conf"
mkdir -p "$work/spooln1" "$work/spooln2"
start $hub hub slurmctld -D -f "$SLURM_CONF"
start am-n1-$$ n1 slurmd -D -N n1 -f "$SLURM_CONF"
start am-n2-$$ n2 slurmd -D -N n2 -f "$SLURM_CONF"
client() { nsenter --net=/run/netns/$hub unshare --uts sh -c 'hostname hub; exec "$@"' sh "$@"; }
for try in $(seq 60); do client sinfo -h -o %A 2> /dev/null | grep -q '^2/0\|^0/2\|^[0-9]*/2' && break; sleep 1; done
client sinfo
mkdir "$work/bin"; ln -s "$amalgam" "$work/bin/amalgam"
export PATH="$work/bin:$PATH" SCENE="$scene" CERTS="$work/certs"
amalgam certs "$CERTS" --hosts n1,n2
cd "$work"
cp "$folder/where.toml" .
"$amalgam" run "$scene" --quiet --out here --transport in-process
for job in single hetjob; do
    OUT=$work/$job client sbatch --wait --export=ALL --output="$work/$job.txt" --time=10 "$folder/$job.sbatch"
    cat "$work/$job.txt"
    there=$(grep state_hash "$work/$job/summary.json"); here=$(grep state_hash here/summary.json)
    echo "$job: $there in one process: $here"
    [ "$there" = "$here" ]
done
echo "the same bits"
