#!/usr/bin/env bash
# Every verb of cluster.sh, checked; about a minute. Loss needs nft, delay python3 and /dev/net/tun.
cd "$(dirname "$0")" || exit 1
out=$(mktemp); trap 'rm -f "$out"' EXIT
export LAB=/run/nodeglass-lab-selftest-$$
C=./cluster.sh; fail=0; n=0
ok() { n=$((n + 1)); echo "ok   $1"; }
no() { fail=$((fail + 1)); echo "FAIL $1"; }
t() { local d=$1; shift; if "$@" >"$out" 2>&1; then ok "$d"; else no "$d: $(tail -2 "$out")"; fi; }
nt() { local d=$1; shift; if "$@" >"$out" 2>&1; then no "$d"; else ok "$d"; fi; }
a() { $C exec login -u alice -- "$@"; }
S='ssh -n -o BatchMode=yes -o ConnectTimeout=3'
state() { a sinfo -h -p gpu -n "$1" -o %T; }
waitfor() { local i; for ((i = 0; i < $1 * 5; i++)); do eval "$2" && return 0; sleep 0.2; done; return 1; }
t "up 3" $C up 3
nt "second up refused" $C up 3
J=$(a sbatch --parsable -N2 -w gpu-node-[01-02] --gres=gpu:2 --wrap 'srun sleep 600')
t "job runs" waitfor 5 '[[ $(a squeue -h -j $J -o %T) == RUNNING ]]'
t "gres idx" eval 'a scontrol show job -d $J | grep -q "GRES=gpu:a100:2(IDX:0-1)"'
t "put" $C put gpu-node-02 README.md /etc/motd.test 600; t "put arrived" eval '$C exec gpu-node-02 -- cat /etc/motd.test | cmp - README.md'; nt "in that host only" $C exec gpu-node-01 -- test -e /etc/motd.test
t "nvml" $C nvml gpu-node-03 README.md README.md; t "library there" eval '$C exec gpu-node-03 -- cat /usr/lib/$(uname -m)-linux-gnu/libnvidia-ml.so.1 | cmp - README.md'; t "state there" eval '$C exec gpu-node-03 -- cat /etc/fake-nvml.json | cmp - README.md'
t "srun overlap" eval '[[ $(a srun --overlap --jobid=$J -N1 -n1 -w gpu-node-02 hostname) == gpu-node-02 ]]'
t "ssh" eval '[[ $(a $S gpu-node-03 hostname) == gpu-node-03 ]]'
t "cut" $C cut gpu-node-03; nt "ssh to cut node" a $S gpu-node-03 true
t "mend" $C mend gpu-node-03; t "ssh again" waitfor 5 'a $S gpu-node-03 true'
t "sshd kill" $C svc gpu-node-03 kill sshd; sleep 0.2; nt "refused" a $S gpu-node-03 true
t "sshd start" $C svc gpu-node-03 start sshd; t "ssh again" waitfor 3 'a $S gpu-node-03 true'
t "freeze sshd" $C freeze gpu-node-03 sshd; nt "no banner" a $S gpu-node-03 true; t "thaw" $C thaw gpu-node-03 sshd; t "ssh again" a $S gpu-node-03 true
t "slurmctld stop" $C svc slurm-ctl stop slurmctld; sleep 0.5; nt "ping down" a scontrol ping
t "slurmctld start" $C svc slurm-ctl start slurmctld; t "job survived" waitfor 10 '[[ $(timeout 2 $C exec login -u alice -- squeue -h -j $J -o %T) == RUNNING ]]'
t "crash" $C crash gpu-node-03; nt "ssh to crashed node" a $S gpu-node-03 true
t "slurm marks it down" waitfor 45 '[[ $(state gpu-node-03) == down* ]]'
t "boot" $C boot gpu-node-03; t "idle again" waitfor 10 '[[ $(state gpu-node-03) == idle ]]'; t "ssh again" a $S gpu-node-03 true
t "library again after the boot" eval '$C exec gpu-node-03 -- cat /etc/fake-nvml.json | cmp - README.md'
if command -v nft >/dev/null; then t "loss 30" $C loss gpu-node-03 30; t "loss rules there" eval '$C exec gpu-node-03 -- /usr/sbin/nft list ruleset | grep -q "< 30 drop"'; t "loss 0" $C loss gpu-node-03 0; fi
if command -v python3 >/dev/null; then t "delay 100" $C delay gpu-node-03 100; s=$EPOCHREALTIME; t "ssh with delay" a $S gpu-node-03 true; t "was slow" awk -v a=$s -v b=$EPOCHREALTIME 'BEGIN{exit !(b-a > 2)}'; t "delay off" $C delay gpu-node-03 off; s=$EPOCHREALTIME; t "ssh" a $S gpu-node-03 true; t "is fast" awk -v a=$s -v b=$EPOCHREALTIME 'BEGIN{exit !(b-a < 1)}'; fi
t "rate 64" $C rate gpu-node-03 64; t "rate 0" $C rate gpu-node-03 0
t "job still running" eval '[[ $(a squeue -h -j $J -o %T) == RUNNING ]]'
LAB=$LAB-2 t "a second cluster beside it" $C up 1
t "its own job numbers" eval '[[ $(LAB=$LAB-2 $C exec login -u bob -- sbatch --parsable --wrap "sleep 1") == 1 ]]'
LAB=$LAB-2 t "second down" $C down
t "first unharmed" eval '[[ $(a squeue -h -j $J -o %T) == RUNNING ]]'
t "down" $C down
t "down twice is fine" $C down
sleep 600 & owner=$!
t "up with an owner" env OWNER=$owner $C up 1; kill $owner; wait $owner 2>/dev/null; t "is gone when the owner is" waitfor 10 '[[ ! -d $LAB ]]'
t "CGROUP=1 up" env CGROUP=1 $C up 1; J=$(a sbatch --parsable --wrap 'sleep 99'); sleep 1.5; t "job cgroup" eval '$C exec gpu-node-01 -- bash -c "cat /proc/\$(pgrep -x sleep -u alice)/cgroup" | grep -q "uid_2001/job_$J/step_batch"'; t "down" $C down
t "no cgroups left" eval '[[ $(find /sys/fs/cgroup -type d -path "*slurm_gpu*" | wc -l) == 0 ]]'
if [[ -e /lib/security/pam_slurm_adopt.so ]]; then t "PAM up" env CGROUP=1 PAM=pam_slurm_adopt $C up 1; nt "ssh denied" a $S gpu-node-01 true; J=$(a sbatch --parsable --wrap 'sleep 99'); sleep 1.5; t "ssh allowed" a $S gpu-node-01 true; t "down" $C down; fi
if command -v slurmdbd >/dev/null; then t "DBD=1 up" env DBD=1 $C up 1; J=$(a sbatch --parsable --gres=gpu:1 --wrap 'sleep 1'); sleep 4; t "sacct" eval 'a sacct -n -P --format=JobID,State,AllocTRES | grep -q "^$J|COMPLETED|.*gres/gpu:a100=1"'; t "down" $C down; fi
echo "$n ok, $fail failed"; exit $((fail > 0))
