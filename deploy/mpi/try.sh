#!/bin/sh
# Runs a scene whose water is a service on one to four ranks, with OpenMPI and with MPICH; then one with a rank that comes late, and
# one whose ranks write their parts of frames; then kills one of three ranks in the middle of a run that goes on from its
# checkpoint, of which each rank has written a part. Compares all hashes with that of one process without MPI. Needs both MPIs with their
# headers, and libclang; builds into target/mpi.
# usage: [MPIS="openmpi mpich"] try.sh [SCENE]
set -eu
cd "$(dirname "$0")/../.."
scene=${1:-scenes/small/drop.toml}
work=$(mktemp -d); pid=
end() {
    [ "$pid" ] && kill $pid 2> /dev/null
    rm -rf "$work"
}
trap end EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
hash() { # OPTION...
    "$amalgam" run "$scene" --quiet --out "$work/out" "$@" > "$work/log" 2>&1 || {
        cat "$work/log"; exit 1
    }
    sed -n 's/.*"state_hash": "\([0-9a-f]*\)".*/\1/p' "$work/out/summary.json"
}
expected=
for mpi in ${MPIS:-openmpi mpich}; do
    MPICC=mpicc.$mpi cargo build --quiet --release -p amalgam --features mpi --target-dir target/mpi/$mpi
    amalgam=target/mpi/$mpi/release/amalgam
    expected=${expected:-$(hash)}
    echo "one process: $expected"
    case $mpi in
        openmpi) options='--oversubscribe --mca mpi_yield_when_idle 1' ;;
        mpich) options= ;;
    esac
    for ranks in 1 2 3 4; do
        mpirun.$mpi -np $ranks $options "$amalgam" serve fluid --listen "unix:$work/water" --ranks mpi --threads 1 \
            > "$work/service" 2>&1 &
        pid=$!
        got=$(hash --wait 30s --set "participants.water.address=unix:$work/water")
        echo "$mpi, $ranks ranks: $got"
        [ "$got" = "$expected" ]
        kill $pid; wait $pid || true
        pid=
    done
    serve="serve fluid --listen unix:$work/water --ranks mpi --threads 1 --files $work"
    mpirun.$mpi $options -np 2 "$amalgam" $serve : -np 1 sh -c "sleep 5; exec $amalgam $serve" > "$work/service" 2>&1 &
    pid=$!
    got=$(hash --wait 30s --set "participants.water.address=unix:$work/water" --set output.pictures.every=1000 \
        --set output.surfaces.water.every=1000)
    echo "$mpi, a rank of 3 comes late: $got, $(ls "$work"/out/frames/water_*_2.vtu | wc -l) frames in parts"
    [ "$got" = "$expected" ]
    [ -e "$work/out/frames/water_000001.pvtu" ]
    kill $pid; wait $pid || true
    pid=
    # The service ends with the rank; the run starts it again and goes back to its checkpoint.
    rm -rf "$work/bin" "$work/out"; mkdir "$work/bin"
    printf '#!/bin/sh\nexec mpirun.%s "$@"\n' $mpi > "$work/bin/mpirun"; chmod +x "$work/bin/mpirun"
    quoted=$(for word in $options; do printf '"%s", ' "$word"; done)
    printf '[participants.water]\nrun = "local"\nmpi_ranks = 3\nthreads = 1\nmpi_options = [%s]\n' "$quoted" > "$work/where.toml"
    TMPDIR="$work" PATH="$work/bin:$PATH" "$amalgam" run "$scene" --quiet --out "$work/out" --deployment "$work/where.toml" --reconnect 1m \
        --checkpoint-every 50steps > "$work/log" 2>&1 &
    pid=$!
    until ls -d "$work"/out/checkpoints/step-0001* > /dev/null 2>&1; do
        kill -0 $pid || { cat "$work/log"; exit 1; }
        sleep 0.05
    done
    kill -9 "$(pgrep -f -- "serve fluid .*$work/.*--ranks mpi" | tail -1)"
    wait $pid || { cat "$work/log"; exit 1; }
    pid=
    got=$(sed -n 's/.*"state_hash": "\([0-9a-f]*\)".*/\1/p' "$work/out/summary.json")
    echo "$mpi, a rank of 3 killed: $got, $(grep -o '"recoveries": [0-9]*' "$work/out/summary.json")"
    [ "$got" = "$expected" ]
done
