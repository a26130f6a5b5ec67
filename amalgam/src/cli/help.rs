//! Texts of the help that are longer than a sentence.

pub(super) const EXIT_CODES: &str = "Exit codes:
  0    done
  1    the run failed: a solver was lost, results could not be written
  2    the scene or the command line is wrong; nothing was run
  130  interrupted by Ctrl-C or SIGTERM; what was computed is readable";

pub(super) const MAIN_EXAMPLES: &str = "Examples:
  amalgam run scenes/water-on-cloth.toml            compute a scene, results in out/water-on-cloth
  amalgam check scenes/water-on-cloth.toml          is the scene right? without computing it
  amalgam run SCENE --set time.duration=0.5         the same scene, with another value
  amalgam resume out/water-on-cloth                 go on with a run that was ended
  amalgam run --help                                everything about running";

pub(super) const RUN_EXAMPLES: &str = "Examples:
  amalgam run scenes/water-on-cloth.toml
  amalgam run SCENE --frames 10                     a look at the first ten frames
  amalgam run SCENE --out /tmp/try --set time.cfl=0.3 --set participants.cloth.settings.bodies[0].spacing=0.02
  amalgam run SCENE --transport in-process --json   no child processes, summary to standard output
  amalgam run SCENE --checkpoint-every 10m          what takes days; amalgam resume goes on after whatever ended it
  amalgam run SCENE --wait 10m                      its solvers on other machines may start later than the run
  amalgam run SCENE --reconnect 5m                  a solver that is lost costs no more than the time since a checkpoint

Results, in out/NAME OF THE SCENE unless --out says otherwise:
  summary.json           what was computed, how fast, how exact; the error if it failed
  scene.toml             the scene as it ran, --set applied
  PARTICIPANT.pvd        open this in ParaView; the frames are in frames/
  pictures/000012.png    a picture per frame, if the scene has [output.pictures]
  probes/NAME.csv        a table per probe, a row per step
  checkpoints/           what amalgam resume goes on from

Ctrl-C or SIGTERM ends the run after its current step and writes a checkpoint and the summary; a second one ends it at
once.
";

pub(super) const RESUME_EXAMPLES: &str = "Examples:
  amalgam resume out/water-on-cloth                 from the newest checkpoint that is whole
  amalgam resume out/water-on-cloth --from 1500     from the one after 1500 steps

The scene is scene.toml in the folder. Frames and tables go on where the checkpoint was taken; whatever was written later
is written again. All of it is to the bit what the run would have written without the interruption.
";

pub(super) const WATCH_EXAMPLES: &str = "Examples:
  amalgam watch out/water-on-cloth
  amalgam run SCENE --watch                         computes and shows at once
  amalgam watch node1:7500 --tls certs              the last run of a coordinator as a service
  ssh -L 8080:localhost:8080 HOST amalgam watch out/water-on-cloth --listen 8080   a run on another machine
  amalgam watch out/water-on-cloth --listen node1:8443 --tls certs                 a page that other machines reach

The page is at the address that the command prints, for this machine alone unless --listen says more. It follows the run while frames are written.
";

pub(super) const REPORT_EXAMPLES: &str = "Examples:
  amalgam report out/water-on-cloth
  amalgam report out/water-on-cloth --to cloth.html

Pictures and curves are inside the file, which needs nothing else.
";

pub(super) const MANUAL_EXAMPLES: &str = "Examples:
  amalgam manual ~/.local/share/amalgam
  source ~/.local/share/amalgam/completions/amalgam.bash
  man ~/.local/share/amalgam/man1/amalgam-run.1
";

pub(super) const EXPORT_EXAMPLES: &str = "Examples:
  amalgam export out/water-on-cloth --usd water.usda
  amalgam run SCENE --set output.usd={}             the same at the end of every run, in out/NAME/NAME.usda

One file holds all frames: particles as points with ids, velocities and widths, sheets, surfaces and obstacles as meshes, each
with its material. Metres, Z up, a time code per frame. Blender, Houdini and Omniverse open it.
";

pub(super) const EVERY_HELP: &str = "Write a checkpoint that often, in wall time or steps: 10m, 500steps";
pub(super) const EVERY_LONG_HELP: &str = "Write a checkpoint that often, so that `amalgam resume` can go on from there.

Wall time is written as 90s, 10m, 2h or 1d, a number of steps as 500steps. The first is written at the start.";

pub(super) const RECONNECT_HELP: &str =
    "Go back to the last checkpoint when a solver is lost, and wait that long for one at an address";
pub(super) const RECONNECT_LONG_HELP: &str = "Go back to the last checkpoint when a solver is lost, in place of ending the run.

Solvers that the run starts itself are started again; one at an address is waited for that long: 90s, 10m, 2h. Results are to
the bit as without the loss. Checkpoints are written at the start and every 5m, or as --checkpoint-every says.";

pub(super) const LAUNCH_EXAMPLES: &str = "Examples:
  amalgam launch SCENE --deployment where.toml
  amalgam resume out/NAME --deployment where.toml   go on with such a run

The file says for each participant who starts its solver; one that is not named is started here:
  tls = \"certs\"                                     a folder of `amalgam certs`, the same path on every machine
  [participants.water]
  run = \"ssh\"                                       or local, slurm, address, registry
  host = \"node7\"
  threads = 32

docs/guide/machines.md names all keys. Ctrl-C ends the run and all solvers that it started.
";

pub(super) const CERTS_EXAMPLES: &str = "Examples:
  amalgam certs certs --hosts node1,node7,10.0.0.7  an authority, and certificates of coordinator, solver and operator
  amalgam certs certs --hosts node1,node7,node8     the same authority, with another host
";

pub(super) const SERVE_EXAMPLES: &str = "Examples:
  amalgam serve solid --listen unix:/tmp/solid.sock
  amalgam serve fluid --listen 127.0.0.1:50051      in the scene: address = \"127.0.0.1:50051\"
  amalgam serve fluid --listen node7:0 --tls certs  any free port of this machine, whose name is node7
  amalgam serve fluid --listen '*:0' --tls certs --register node1:7400 --name water
                                                    told to amalgam run SCENE --registry node1:7400 --tls certs
  amalgam serve coordinator --listen 127.0.0.1:7500 scenes are sent to it with amalgam at 127.0.0.1:7500 submit SCENE

Prints `listening ADDRESS` on standard output when it is ready.";

pub(super) const AT_EXAMPLES: &str = "Examples:
  amalgam at 127.0.0.1:7500 submit scenes/small/drop.toml --follow
  amalgam at 127.0.0.1:7500 runs                    all runs, and how far they are
  amalgam at 127.0.0.1:7500 pause drop-1            hold a run; continue lets it go on
  amalgam at 127.0.0.1:7500 stop drop-1             end it with a checkpoint; continue goes on from there
  amalgam at 127.0.0.1:7500 fetch drop-1            copy its results to out/drop-1

Exit codes: 0 done; 1 the service refused, could not be reached, or the run that was followed failed; 2 the scene or the
command line is wrong; 130 the run that was followed was stopped.";

pub(super) const VALIDATE_EXAMPLES: &str = "Examples:
  amalgam validate                                  every case but those that take longest
  amalgam validate --list                           which cases there are, and what they compare
  amalgam validate catenary --out out/validation    one case, with its picture in that folder
  amalgam validate --json checks.json               an array of {case, quantity, reference, measured, tolerance, pass}

Each case is a scene that runs through the same coordinator and solvers as `amalgam run`, in this process, and is
compared with a closed form, published data or a conservation law; the README of each case names its source. A quantity
passes if it differs from its reference by at most the tolerance, which is in the quantity's own unit.";

pub(super) const VALIDATE_EXIT_CODES: &str = "Exit codes:
  0    everything is within its tolerance
  1    something is not, or a case could not be computed
  2    the command line is wrong; nothing was computed";

pub(super) const REPRODUCE_EXAMPLES: &str = "Examples:
  amalgam reproduce                                 every figure, some seconds per run
  amalgam reproduce --list                          which figures there are, and how many runs each takes
  amalgam reproduce fig3 fig11 --out /tmp/figures   two of them

DIR/report.html holds everything: pictures, numbers, verdicts and the rules by which they come about. It is written anew
after every run, so that Ctrl-C leaves a report of what was computed. A run that ends with an error counts as a failure
of its method and not of this command. docs/guide/trust.md says what came out.
";

pub(super) const SET_HELP: &str = "Replace a value of the scene, KEY=VALUE; may be given several times";
pub(super) const SET_LONG_HELP: &str = "Replace a value of the scene; may be given several times.

KEY is a path such as time.duration or participants[0].settings.bodies[0].spacing; a participant may also be given by
its name, as in participants.cloth.settings.tolerance. VALUE is written as in TOML; plain words need no quotes.";

pub(super) const PLAN_EXAMPLES: &str = "Examples:
  amalgam plan scenes/water-on-cloth.toml --particles 1e8 --nodes 64
  amalgam plan out/water-on-cloth --particles 1e8 --network ethernet    from a run: contacts and calls as they were there

The time of a step is what it takes here, spread over the cores of the cluster, and what is lost: to participants that one
node must compute alone, unequal ranks, particles that ranks see of each other, messages, the coordinator, and calls.
Memory and messages are those of this version. A model cannot know the machine: take times as a guide.
";
