#!/usr/bin/env bash
# A real SLURM cluster (munged, slurmctld, slurmd) with a real sshd on every host, on ONE machine:
# each "host" is a net, mount, uts, ipc and pid namespace of its own. README.md says more.
#
#   cluster.sh up [N]                 login + slurm-ctl + gpu-node-01..N   (default 4)
#   cluster.sh down                   end everything that `up` started, remove $LAB
#   cluster.sh exec HOST [-u USER] -- CMD...     run CMD on HOST (root unless -u); kill it and CMD ends too
#   cluster.sh sh HOST [-u USER]      interactive shell
#   cluster.sh pid HOST               pid of HOST's init as the machine sees it (for nsenter, /proc/PID/root)
#   cluster.sh put HOST FROM TO [MODE]           copy a file of the machine into HOST (mode 644, root's)
#   cluster.sh nvml HOST LIB [STATE]  give HOST this libnvidia-ml.so.1 and /etc/fake-nvml.json, also after a boot
#   cluster.sh cut HOST | mend HOST   pull / plug the network cable (packets vanish without a word)
#   cluster.sh svc HOST stop|kill|start sshd|slurmd|slurmctld|munged
#   cluster.sh freeze HOST SERVICE | thaw HOST SERVICE     SIGSTOP / SIGCONT
#   cluster.sh crash HOST | boot HOST power loss (cable first, then SIGKILL) / power on
#   cluster.sh loss HOST PERCENT      random frame loss both ways (needs nft; 0 removes)
#   cluster.sh delay HOST MS [JITTER [LOSS]] | delay HOST off    user-space wire (python3, /dev/net/tun)
#   cluster.sh rate HOST KBIT         bandwidth limit both ways (tbf; 0 removes)
#   cluster.sh status
set -euo pipefail

LAB=${LAB:-/run/nodeglass-lab}       # everything of this cluster is below; another LAB is another cluster
SPEC=${SPEC:-a100:4}               # GPUs per node, TYPE:COUNT; a list is dealt out round robin:
                                   # "a100:4 h100:8 :2 none"   (:2 = two GPUs without a type)
CPUS=${CPUS:-32}                   # pretended cores per node
MEM=${MEM:-64000}                  # pretended MiB per node
USERS=${USERS:-alice:2001 bob:2002 carol:2003 dave:2004 svc:2005}
CGROUP=${CGROUP:-0}                # 1: proctrack/cgroup (cgroup v1 or hybrid machines)
CONFINE=${CONFINE:-0}              # 1, with CGROUP=1: a job's processes may open its GPUs only (ConstrainDevices)
DBD=${DBD:-0}                      # 1: accounting too (apt: slurmdbd slurm-wlm-mysql-plugin mariadb-server-core mariadb-client-core)
PAM=${PAM:-}                       # ''|pam_slurm|pam_slurm_adopt : ssh only onto nodes of own jobs
BIND=${BIND:-}                     # extra host directories, mounted at the same path in every host
SLURMD_TIMEOUT=${SLURMD_TIMEOUT:-10}
NVML_LIB=${NVML_LIB:-}             # a libnvidia-ml.so.1 for every GPU node
NVML_STATE=${NVML_STATE:-}         # ... and its /etc/fake-nvml.json
OWNER=${OWNER:-}                   # a pid: when it is gone, the cluster takes itself down
SELF=$(readlink -f "$0")
S=$LAB/shared                      # seen in every host as /lab

die() { echo "cluster.sh: $*" >&2; exit 1; }
now() { local t=${EPOCHREALTIME/./}; echo "$t"; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN{printf "%.2f",(b-a)/1e6}'; }
node() { printf 'gpu-node-%02d' "$1"; }
ipof() {
    case $1 in
        login) echo 10.77.0.1 ;; slurm-ctl) echo 10.77.0.2 ;;
        gpu-node-*) echo "10.77.1.$((10#${1##*-}))" ;; *) die "no such host: $1" ;;
    esac
}
veth() { case $1 in login) echo v-login ;; slurm-ctl) echo v-ctl ;; *) echo "v-n${1##*-}" ;; esac; }
pidof_host() {   # prints the init pid of HOST, checked against its recorded start time
    local p t; read -r p t 2>/dev/null <"$LAB/pids/$1" || return 1
    [[ -r /proc/$p/stat && $(awk '{print $22}' "/proc/$p/stat") == "$t" ]] || return 1
    echo "$p"
}
hosts_up() { [[ -d $LAB/pids ]] && (cd "$LAB/pids" && ls) || true; }
in_sw() { nsenter -t "$(pidof_host sw)" -n -- "$@"; }
enter() {
    local h=$1 p; shift
    p=$(pidof_host "$h") || die "$h is not up"
    ${EXEC:-} nsenter -t "$p" -n -m -u -i -p -r -w -- "$@"
}
as() {   # a signal or SIGKILL to the process that runs this ends CMD too (SIGTERM through pdeathsig), except for one that
         # comes before pdeathsig is set: stop it and its children first
    local h=$1 u=$2; shift 2
    enter "$h" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        TERM="${TERM:-dumb}" LANG=C.UTF-8 HOME="$([[ $u == root ]] && echo /root || echo "/home/$u")" \
        USER="$u" LOGNAME="$u" SHELL=/bin/bash \
        /usr/bin/setpriv --reuid "$u" --regid "$u" --init-groups --pdeathsig TERM \
        /bin/bash -c 'cd ~; exec "$@"' _ "$@"
}

libdir() { echo "/usr/lib/$(uname -m)-linux-gnu"; }
place_nvml() {   # ROOT HOST: what `nvml` or NVML_LIB left for this host, at its places
    local from=$S/nvml/$2
    if [[ -e $from/lib ]]; then
        install -D -m 755 "$from/lib" "$1$(libdir)/libnvidia-ml.so.1.new"   # a loaded one is never written to
        mv "$1$(libdir)/libnvidia-ml.so.1.new" "$1$(libdir)/libnvidia-ml.so.1"
    fi
    if [[ -e $from/state.json ]]; then
        install -m 644 "$from/state.json" "$1/etc/fake-nvml.json.new"
        mv "$1/etc/fake-nvml.json.new" "$1/etc/fake-nvml.json"
    fi
}

place_devices() {   # ROOT COUNT: the driver's own device numbers, which a cgroup tells apart, and what it lists of them
    local d to
    mount -t tmpfs -o mode=755,size=64k tmpfs "$1/proc/driver"
    for ((d = 0; d < $2; d++)); do
        mknod -m 666 "$1/dev/nvidia$d" c 195 "$d"
        to=$1/proc/driver/nvidia/gpus/$(printf '0000:%02x:00.0' $((d + 7))); mkdir -p "$to"
        printf 'Model: \t\t NVIDIA A100-SXM4-80GB\nDevice Minor: \t %d\nGPU Excluded:\t No\n' "$d" >"$to/information"
    done
    mknod -m 666 "$1/dev/nvidiactl" c 195 255
}

# ------------------------------------------------------------------ inside a host
host_main() {    # first code in the new namespaces; /proc is still the machine's own here
    local name=$1 pid rest H R
    read -r pid rest </proc/self/stat
    H=$LAB/hosts/$name R=$LAB/hosts/$name/root
    mount --make-rprivate /
    hostname "$name"
    mount -t tmpfs -o mode=755,size=1g tmpfs "$H"
    mkdir -p "$H"/{upper,work,root}
    mount -t overlay -o "lowerdir=/,upperdir=$H/upper,workdir=$H/work" overlay "$R"
    mount -t proc proc "$R/proc"
    mount -t sysfs sysfs "$R/sys"
    [[ -d /sys/fs/cgroup ]] && mount --rbind /sys/fs/cgroup "$R/sys/fs/cgroup"
    # a private /dev: the usual nodes plus this host's own GPUs
    mount -t tmpfs -o mode=755,size=64k tmpfs "$R/dev"
    local d
    for d in "null 1 3" "zero 1 5" "full 1 7" "random 1 8" "urandom 1 9" "tty 5 0"; do
        set -- $d; mknod -m 666 "$R/dev/$1" c "$2" "$3"
    done
    mkdir "$R/dev/pts" "$R/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts "$R/dev/pts"
    ln -s pts/ptmx "$R/dev/ptmx"; ln -s /proc/self/fd "$R/dev/fd"
    ln -s fd/0 "$R/dev/stdin"; ln -s fd/1 "$R/dev/stdout"; ln -s fd/2 "$R/dev/stderr"
    mount -t tmpfs -o mode=1777 tmpfs "$R/dev/shm"
    if [[ $name == gpu-node-* ]]; then       # stand-ins: /dev/null under another name
        local gpus; gpus=$(cat "$S/gpus/$name")
        if [[ $CONFINE == 1 ]]; then place_devices "$R" "$gpus"; else
            for ((d = 0; d < gpus; d++)); do mknod -m 666 "$R/dev/nvidia$d" c 1 3; done
            mknod -m 666 "$R/dev/nvidiactl" c 1 3
        fi
    fi
    mount -t tmpfs -o mode=1777 tmpfs "$R/tmp"
    mount -t tmpfs -o mode=755 tmpfs "$R/run"
    mkdir -p "$R/lab" "$R/run/sshd" "$R/run/lock"
    mount --bind "$S" "$R/lab"
    mount --bind "$LAB/home" "$R/home"                       # shared like NFS
    mkdir -p "$R/etc/slurm" "$R/var/log/slurm"
    mount --bind "$S/etc-slurm" "$R/etc/slurm"
    mount --bind "$S/log/$name" "$R/var/log/slurm"
    for d in $BIND; do mkdir -p "$R$d"; mount --bind "$d" "$R$d"; done
    # identity
    for d in passwd group shadow hosts nsswitch.conf; do cp "$S/etc/$d" "$R/etc/$d"; done
    chmod 644 "$R/etc/passwd" "$R/etc/group" "$R/etc/hosts"; chmod 600 "$R/etc/shadow"
    echo "$name" >"$R/etc/hostname"
    rm -f "$R"/etc/ssh/ssh_host_* "$R"/etc/ssh/sshd_config.d/*
    cp "$S/keys/$name/"ssh_host_* "$R/etc/ssh/"; chmod 600 "$R"/etc/ssh/ssh_host_*_key
    cp "$S/etc/sshd_config" "$R/etc/ssh/sshd_config"
    cp "$S/etc/ssh_known_hosts" "$R/etc/ssh/ssh_known_hosts"
    place_nvml "$R" "$name"
    if [[ -n $PAM && $name == gpu-node-* ]]; then
        sed -i 's/^UsePAM no/UsePAM yes/' "$R/etc/ssh/sshd_config"
        printf 'auth required pam_deny.so\naccount required %s.so\nsession required pam_unix.so\n' \
            "$PAM" >"$R/etc/pam.d/sshd"
    fi
    cd "$R"; mkdir -p .old; pivot_root . .old
    exec chroot . /bin/bash /lab/cluster.sh _init "$name" "$pid" <&- >>"/lab/log/$name/init.log" 2>&1
}
start_svc() {    # runs inside a host
    case $1 in
        munged) install -d -o munge -g munge -m 755 /run/munge
                install -d -o munge -g munge -m 711 /var/lib/munge
                install -d -o munge -g munge -m 700 /var/log/munge /etc/munge
                [[ -e /run/munge/munged.pid ]] && rm -f /run/munge/munged.pid
                exec setpriv --reuid munge --regid munge --clear-groups /usr/sbin/munged --foreground --force </dev/null ;;
        sshd)   exec /usr/sbin/sshd -D -E /var/log/slurm/sshd.log </dev/null ;;
        mariadbd)
            local db=/lab/ctld/mysql
            install -d -o slurm -g slurm -m 755 /run/mysqld "$db"
            [[ -d $db/mysql ]] || setpriv --reuid slurm --regid slurm --clear-groups mariadb-install-db --no-defaults \
                --datadir="$db" --auth-root-authentication-method=normal --skip-test-db --skip-name-resolve
            exec setpriv --reuid slurm --regid slurm --clear-groups mariadbd --no-defaults --datadir="$db" \
                --socket=/run/mysqld/mysqld.sock --pid-file=/run/mysqld/pid --skip-networking --innodb-buffer-pool-size=32M \
                --innodb-flush-log-at-trx-commit=0 --performance-schema=OFF </dev/null ;;
        slurmdbd) exec setpriv --reuid slurm --regid slurm --clear-groups /usr/sbin/slurmdbd -D </dev/null ;;
        slurmctld) exec setpriv --reuid slurm --regid slurm --clear-groups /usr/sbin/slurmctld -D </dev/null ;;
        slurmd) exec /usr/sbin/slurmd -D -N "$(hostname)" </dev/null ;;
    esac
}
host_init() {    # pid 1 of a host
    local name=$1 pid=$2 s
    export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
    unset SLURM_CONF HOME
    umount -l /.old; rmdir /.old
    echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6 2>/dev/null || true
    ip link set lo up
    echo "$pid $(awk '{print $22}' /proc/1/stat)" >"/lab/ready/$name"   # makes `up` plug eth0
    until ip link show eth0 >/dev/null 2>&1; do sleep 0.02; done
    ip addr add "$(ipof "$name")/16" dev eth0; ip link set eth0 up
    for s in $(services "$name"); do
        ( start_svc "$s" ) >>"/lab/log/$name/$s.out" 2>&1 &
        echo $! >"/run/lab-$s.pid"
        case $s in    # what the next service needs
            munged) until [[ -S /run/munge/munge.socket.2 ]]; do sleep 0.02; done ;;
            mariadbd) until mariadb --no-defaults -uroot -S /run/mysqld/mysqld.sock -e "select 1" >/dev/null 2>&1; do sleep 0.1; done ;;
            slurmdbd) until (exec 3<>/dev/tcp/127.0.0.1/6819) 2>/dev/null; do sleep 0.1; done ;;
        esac
    done
    trap : CHLD TERM HUP INT        # bash reaps every orphan of this pid namespace
    while :; do sleep 86400 & wait $! || true; done
}
services() { case $1 in login) echo munged sshd ;; slurm-ctl) [[ $DBD == 1 ]] && echo munged sshd mariadbd slurmdbd slurmctld || echo munged slurmctld sshd ;; *) echo munged slurmd sshd ;; esac; }

# ------------------------------------------------------------------ outside
boot_host() {
    local name=$1 p t i
    mkdir -p "$LAB/hosts/$name" "$S/log/$name"; chown slurm "$S/log/$name"
    rm -f "$S/ready/$name"
    setsid env -i PATH="$PATH" LAB="$LAB" PAM="$PAM" BIND="$BIND" DBD="$DBD" CONFINE="$CONFINE" \
        unshare -n -m -u -i -p --fork /bin/bash "$S/cluster.sh" _host "$name" \
        </dev/null >>"$S/log/$name/boot.log" 2>&1 &
    disown
    for ((i = 0; i < 500; i++)); do [[ -s $S/ready/$name ]] && break; sleep 0.02; done
    [[ -s $S/ready/$name ]] || { cat "$S/log/$name/boot.log" >&2; die "$name did not boot"; }
    read -r p t <"$S/ready/$name"
    echo "$p $t" >"$LAB/pids/$name"
    [[ -n $(pidof_host "$name") ]] || die "$name: pid $p is not what it said"
    # a dead host's orphaned TCP sockets can hold its net namespace, and so the old cable, for minutes
    in_sw ip link del "$(veth "$name")" 2>/dev/null || true
    in_sw ip link add "$(veth "$name")" type veth peer name eth0 netns "$p"
    in_sw ip link set "$(veth "$name")" master br0 up
}
write_conf() {
    local n=$1 i h u spec type count tres='' specs; specs=($SPEC)
    mkdir -p "$LAB"/{hosts,pids,home} "$S"/{etc,etc-slurm,gpus,log,keys,ready,ctld}
    chmod 755 "$LAB" "$S" "$LAB/home"
    cp "$SELF" "$S/cluster.sh"
    chown slurm "$S/ctld"
    # accounts, on top of the machine's own system accounts
    cp /etc/passwd /etc/group /etc/shadow /etc/nsswitch.conf "$S/etc/"
    for u in $USERS; do
        h=${u%%:*} i=${u##*:}
        sed -i "/^$h:/d" "$S/etc/passwd" "$S/etc/group" "$S/etc/shadow"
        echo "$h:x:$i:$i::/home/$h:/bin/bash" >>"$S/etc/passwd"
        echo "$h:x:$i:" >>"$S/etc/group"
        echo "$h:*:19000:0:99999:7:::" >>"$S/etc/shadow"      # '*', not '!': '!' is "locked" to sshd
        install -d -m 700 "$LAB/home/$h" "$LAB/home/$h/.ssh"
        ssh-keygen -q -t ed25519 -N '' -C "$h@login" -f "$LAB/home/$h/.ssh/id_ed25519"
        cp "$LAB/home/$h/.ssh/id_ed25519.pub" "$LAB/home/$h/.ssh/authorized_keys"
        chown -R "$i:$i" "$LAB/home/$h"; chmod 600 "$LAB/home/$h/.ssh/authorized_keys"
    done
    { echo "127.0.0.1 localhost"
      for h in login slurm-ctl; do echo "$(ipof $h) $h"; done
      for ((i = 1; i <= n; i++)); do h=$(node "$i"); echo "$(ipof "$h") $h"; done; } >"$S/etc/hosts"
    : >"$S/etc/ssh_known_hosts"
    for h in login slurm-ctl $(for ((i = 1; i <= n; i++)); do node "$i"; echo; done); do
        mkdir -p "$S/keys/$h"
        ssh-keygen -q -t ed25519 -N '' -C "root@$h" -f "$S/keys/$h/ssh_host_ed25519_key"
        echo "$h,$(ipof "$h") $(cut -d' ' -f1,2 "$S/keys/$h/ssh_host_ed25519_key.pub")" >>"$S/etc/ssh_known_hosts"
    done
    cat >"$S/etc/sshd_config" <<-E
	Port 22
	HostKey /etc/ssh/ssh_host_ed25519_key
	UsePAM no
	PasswordAuthentication no
	KbdInteractiveAuthentication no
	PermitRootLogin no
	UseDNS no
	PidFile /run/sshd.pid
	LogLevel VERBOSE
	MaxStartups 100:30:200
	Subsystem sftp internal-sftp
	E
    cat >"$S/etc-slurm/slurm.conf" <<-E
	ClusterName=lab
	SlurmctldHost=slurm-ctl
	SlurmUser=slurm
	AuthType=auth/munge
	StateSaveLocation=/lab/ctld
	SlurmdSpoolDir=/var/spool/slurmd
	SlurmctldPidFile=/lab/ctld/slurmctld.pid
	SlurmdPidFile=/run/slurmd.pid
	SlurmctldLogFile=/var/log/slurm/slurmctld.log
	SlurmdLogFile=/var/log/slurm/slurmd.log
	ProctrackType=proctrack/$([[ $CGROUP == 1 ]] && echo cgroup || echo linuxproc)
	TaskPlugin=task/$([[ $CONFINE == 1 ]] && echo cgroup || echo none)
	JobAcctGatherType=jobacct_gather/linux
	JobAcctGatherFrequency=5
	MpiDefault=none
	MailProg=/bin/true
	SelectType=select/cons_tres
	SelectTypeParameters=CR_Core_Memory
	DefMemPerCPU=100
	SlurmdParameters=config_overrides
	SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=2,permit_job_expansion
	SlurmctldTimeout=30
	SlurmdTimeout=$SLURMD_TIMEOUT
	KillWait=3
	MinJobAge=300
	ReturnToService=2
	GresTypes=gpu
	$([[ -n $PAM ]] && echo PrologFlags=Contain)
	$([[ $DBD == 1 ]] && printf 'AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=slurm-ctl\nAccountingStorageTRES=gres/gpu@TRES@\nJobAcctGatherType=jobacct_gather/linux\nJobAcctGatherFrequency=task=1')
	NodeName=DEFAULT CPUs=$CPUS Boards=1 SocketsPerBoard=1 CoresPerSocket=$CPUS ThreadsPerCore=1 RealMemory=$MEM
	@NODES@
	PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
	PartitionName=short Nodes=ALL MaxTime=1:00:00 State=UP
	E
    sed -i '/^$/d' "$S/etc-slurm/slurm.conf"
    for ((i = 1; i <= n; i++)); do
        h=$(node "$i") spec=${specs[(i - 1) % ${#specs[@]}]}
        if [[ $spec == none ]]; then
            echo 0 >"$S/gpus/$h"; echo "NodeName=$h"
        else
            type=${spec%%:*} count=${spec##*:}
            echo "$count" >"$S/gpus/$h"
            echo "NodeName=$h Gres=gpu:${type:+$type:}$count"
            # a gpu line WITHOUT File= is silently ignored by 22.05 and drains the node
            echo "NodeName=$h Name=gpu ${type:+Type=$type }File=/dev/nvidia$( ((count > 1)) && echo "[0-$((count - 1))]" || echo 0)" >>"$S/etc-slurm/gres.conf"
            [[ -n $type && ,$tres, != *,gres/gpu:$type,* ]] && tres+=",gres/gpu:$type"
        fi
    done >"$S/etc-slurm/nodes.tmp"
    touch "$S/etc-slurm/gres.conf"
    sed -i -e "/^@NODES@/{r $S/etc-slurm/nodes.tmp" -e 'd}' -e "s|@TRES@|$tres|" "$S/etc-slurm/slurm.conf"
    rm "$S/etc-slurm/nodes.tmp"
    if [[ $CGROUP == 1 ]]; then
        printf 'CgroupPlugin=autodetect\nCgroupAutomount=yes\nConstrainDevices=%s\n' \
            "$([[ $CONFINE == 1 ]] && echo yes || echo no)" >"$S/etc-slurm/cgroup.conf"
    fi
    chmod 644 "$S"/etc-slurm/*
    if [[ $DBD == 1 ]]; then
        printf 'DbdHost=slurm-ctl\nSlurmUser=slurm\nAuthType=auth/munge\nPidFile=/lab/ctld/slurmdbd.pid\nLogFile=/var/log/slurm/slurmdbd.log\nStorageType=accounting_storage/mysql\nStorageHost=localhost\nStorageUser=root\nStorageLoc=slurm_acct_db\n' >"$S/etc-slurm/slurmdbd.conf"
        chown slurm "$S/etc-slurm/slurmdbd.conf"; chmod 600 "$S/etc-slurm/slurmdbd.conf"
    fi
}
ssh_check() {
    local u=$1 h=$2 o
    o=$(as login "$u" ssh -o BatchMode=yes -o ConnectTimeout=10 "$h" hostname </dev/null 2>&1) || true
    if [[ -z $PAM ]]; then
        [[ $o == "$h" ]] || die "ssh to $h: $o"
    else    # no user has a job yet: the key must be accepted and the account refused
        [[ $o == *"Access denied"* ]] || die "ssh to $h, $PAM: $o"
    fi
}
up() {
    local n=${1:-4} i t0 t1 h want
    [[ $(id -u) == 0 ]] || die "needs root"
    for i in slurmctld slurmd sinfo munged sshd ssh-keygen ip unshare nsenter setpriv; do
        command -v "$i" >/dev/null || die "$i is not installed"
    done
    [[ -e /etc/munge/munge.key ]] || die "/etc/munge/munge.key is missing (package munge makes it)"
    [[ -e $LAB ]] && die "$LAB exists: run '$0 down' first"
    (( n >= 1 && n <= 99 )) || die "1..99 nodes"
    trap 'exit 130' INT; trap 'exit 143' TERM
    trap 'rc=$?; [[ $rc == 0 ]] || { echo "up failed, taking it down again; logs in $LAB.failed" >&2; rm -rf "$LAB.failed"; cp -r "$S/log" "$LAB.failed" 2>/dev/null; down; }' EXIT
    t0=$(now); write_conf "$n"; echo "config, keys     $(since "$t0") s"
    [[ -n $OWNER ]] && watch_owner
    for ((i = 1; i <= n; i++)); do keep_nvml "$(node "$i")" "$NVML_LIB" "$NVML_STATE"; done
    t1=$(now)
    # the switch: a net namespace of its own, held open by one sleeping process
    setsid unshare -n --fork sleep infinity </dev/null >/dev/null 2>&1 & disown
    local up=$! p=
    for ((i = 0; i < 200; i++)); do p=$(cat "/proc/$up/task/$up/children" 2>/dev/null | tr -d ' ') && [[ -n $p ]] && break; sleep 0.01; done
    for ((i = 0; i < 200; i++)); do [[ $(tr '\0' ' ' <"/proc/$p/cmdline") == "sleep infinity " ]] && break; sleep 0.01; done
    echo "$p $(awk '{print $22}' "/proc/$p/stat")" >"$LAB/pids/sw"
    [[ $(readlink "/proc/$p/ns/net") != "$(readlink /proc/self/ns/net)" ]] || die "no private net namespace"
    in_sw ip link set lo up
    in_sw ip link add br0 type bridge; in_sw ip link set br0 up
    boot_host slurm-ctl; boot_host login
    local jobs=()
    for ((i = 1; i <= n; i++)); do
        boot_host "$(node "$i")" & jobs+=($!)
        if (( ${#jobs[@]} == 4 || i == n )); then for p in "${jobs[@]}"; do wait "$p" || die "a host did not boot"; done; jobs=(); fi
    done
    echo "hosts booted     $(since "$t1") s"
    t1=$(now)
    while (( $(now) - t1 < 60000000 )); do
        want=$(enter login sinfo -h -N -p gpu -o %T 2>/dev/null | grep -c '^idle$' || true)
        [[ $want == "$n" ]] && break; sleep 0.1
    done
    [[ $want == "$n" ]] || { enter login sinfo -N -o '%N %T %E' >&2 || true; die "only $want of $n nodes idle"; }
    echo "all nodes idle   $(since "$t1") s"
    t1=$(now); u=${USERS%%:*}
    for ((i = 1; i <= n; i++)); do
        ssh_check "$u" "$(node "$i")" & jobs+=($!)
        if (( ${#jobs[@]} == 8 || i == n )); then for p in "${jobs[@]}"; do wait "$p" || die "ssh check failed"; done; jobs=(); fi
    done
    echo "ssh to all nodes $(since "$t1") s"
    echo "up, $n nodes      $(since "$t0") s;  try: $0 exec login -u $u -- sinfo -N"
    : >"$LAB/is-up"
    trap - EXIT
}
keep_nvml() {    # HOST LIB STATE: kept beside the host, so that it is there again after `boot`
    local to=$S/nvml/$1
    mkdir -p "$to"
    [[ -z $2 ]] || install -m 755 "$2" "$to/lib"
    [[ -z $3 ]] || install -m 644 "$3" "$to/state.json"
}
nvml() {
    local h=$1 p
    keep_nvml "$h" "$2" "${3:-}"
    p=$(pidof_host "$h") || die "$h is not up"
    enter "$h" /bin/bash /lab/cluster.sh _nvml "$h"
}
put() {          # through the host's own namespaces: its symlinks must not lead into the machine
    local h=$1 from=$2 to=$3 mode=${4:-644}
    enter "$h" /bin/bash -c 'mkdir -p "$(dirname "$1")" && cat >"$1.new" && chmod "$2" "$1.new" && mv "$1.new" "$1"' _ "$to" "$mode" <"$from"
}
watch_owner() {  # a killed test leaves no cluster behind
    local self=$$
    LAB_WATCH=1 LAB=$LAB setsid /bin/bash -c '
        tail --pid="$1" -f /dev/null
        [[ -e $LAB/is-up ]] || kill "$2" 2>/dev/null    # still going up: its own trap takes it down
        for ((i = 0; i < 100; i++)); do [[ -e $LAB/is-up || ! -d $LAB ]] && break; sleep 0.1; done
        exec /bin/bash "$3" down' _ "$OWNER" "$self" "$SELF" </dev/null >/dev/null 2>&1 & disown
    echo $! >"$LAB/watch.pid"
}
end_watch() {
    local p
    [[ -z ${LAB_WATCH:-} && -s $LAB/watch.pid ]] || return 0
    read -r p <"$LAB/watch.pid"
    [[ -r /proc/$p/cmdline && $(tr '\0' ' ' <"/proc/$p/cmdline") == *"tail --pid="* ]] && kill -KILL -- "-$p" || true
}
down() {
    local h p i left f
    [[ -d $LAB ]] || { echo "nothing to do: $LAB does not exist"; return 0; }
    end_watch
    for f in "$LAB"/delay.gpu-node-*; do
        [[ -s $f ]] || continue
        read -r p <"$f"; [[ -r /proc/$p/cmdline && $(tr '\0' ' ' <"/proc/$p/cmdline") == *delay.py* ]] && kill "$p" || true
    done
    for h in $(hosts_up); do
        if p=$(pidof_host "$h"); then kill -KILL "$p" 2>/dev/null || true; fi
    done
    for ((i = 0; i < 200; i++)); do      # killing pid 1 of a pid namespace kills all of it
        left=0; for h in $(hosts_up); do if pidof_host "$h" >/dev/null; then left=1; fi; done
        [[ $left == 0 ]] && break; sleep 0.05
    done
    [[ $left == 0 ]] || die "some hosts did not die"
    if [[ -e $S/etc-slurm/cgroup.conf ]]; then
        find /sys/fs/cgroup -depth -type d -path '*/slurm*' 2>/dev/null | while read -r f; do rmdir "$f" 2>/dev/null || true; done
    fi
    rm -rf --one-file-system "$LAB"
    echo down
}
boot() { local h=$1; pidof_host "$h" >/dev/null && die "$h is up"; boot_host "$h"; }
crash() { in_sw ip link set "$(veth "$1")" down; kill -KILL "$(pidof_host "$1")"; rm -f "$LAB/pids/$1"; }
svcpid() { enter "$1" cat "/run/lab-$2.pid"; }
svc() {
    local h=$1 what=$2 s=$3
    case $what in
        stop)  enter "$h" bash -c "kill -TERM \$(cat /run/lab-$s.pid)" ;;
        kill)  enter "$h" bash -c "kill -KILL \$(cat /run/lab-$s.pid)" ;;
        start) enter "$h" setsid bash -c "bash /lab/cluster.sh _svc $s >>/lab/log/$h/$s.out 2>&1 </dev/null & echo \$! >/run/lab-$s.pid" ;;
        *) die "svc HOST stop|kill|start SERVICE" ;;
    esac
}
in_net() { local h=$1; shift; nsenter -t "$(pidof_host "$h")" -n -- "$@"; }
loss() {   # drops at both ends of the host's cable; the machine's own nft, in the host's net namespace
    local h=$1 pc=$2 v t; v=$(veth "$h"); t=loss_${v//-/_}
    in_net sw nft delete table netdev "$t" 2>/dev/null || true
    in_net "$h" nft delete table netdev loss 2>/dev/null || true
    (( pc == 0 )) && return 0
    printf 'table netdev %s {\n chain in {\n  type filter hook ingress device "%s" priority 0;\n  numgen random mod 100 < %s drop;\n }\n}\n' "$t" "$v" "$pc" | in_net sw nft -f -
    printf 'table netdev loss {\n chain in {\n  type filter hook ingress device "eth0" priority 0;\n  numgen random mod 100 < %s drop;\n }\n}\n' "$pc" | in_net "$h" nft -f -
}
delay() {  # MS [JITTER_MS [LOSS_PERCENT]]; "off" puts the plain cable back
    local h=$1 p f=$LAB/delay.$1; shift
    if [[ -s $f ]]; then
        read -r p <"$f"; rm -f "$f"
        [[ -r /proc/$p/cmdline && $(tr '\0' ' ' <"/proc/$p/cmdline") == *delay.py* ]] && kill "$p"
        in_net "$h" ip addr add "$(ipof "$h")/16" dev eth0; in_net "$h" ip link set eth0 up
    fi
    [[ $1 == off ]] && return 0
    setsid python3 "$(dirname "$SELF")/delay.py" "$(pidof_host "$h")" "$(pidof_host sw)" "$(ipof "$h")/16" "$@" \
        </dev/null >>"$LAB/delay.log" 2>&1 &
    echo $! >"$f"; disown; sleep 0.3
}
rate() {   # KBIT/s towards the host and from it (tbf); 0 removes
    local h=$1 k=$2 v; v=$(veth "$h")
    in_sw tc qdisc del dev "$v" root 2>/dev/null || true; in_net "$h" tc qdisc del dev eth0 root 2>/dev/null || true
    (( k == 0 )) && return 0
    in_sw tc qdisc add dev "$v" root tbf rate "${k}kbit" burst 4kb latency 2s
    in_net "$h" tc qdisc add dev eth0 root tbf rate "${k}kbit" burst 4kb latency 2s
}
status() {
    local h p
    for h in $(hosts_up); do p=$(pidof_host "$h" || echo dead); echo "$h $p $([[ $h == sw ]] || ipof "$h")"; done | column -t
    enter login sinfo -N -o '%N %T %C %G' || true
}

cmd=${1:-}; [[ $# -gt 0 ]] && shift
case $cmd in
    up) up "$@" ;;
    down) down ;;
    exec|sh)
        h=${1:?host}; shift; u=root
        [[ ${1:-} == -u ]] && { u=$2; shift 2; }
        [[ ${1:-} == -- ]] && shift
        [[ $cmd == sh ]] && set -- bash
        EXEC=exec as "$h" "$u" "$@" ;;
    pid) pidof_host "${1:?host}" ;;
    put) put "$@" ;;
    nvml) nvml "$@" ;;
    cut) in_sw ip link set "$(veth "$1")" down ;;
    mend) in_sw ip link set "$(veth "$1")" up ;;
    svc) svc "$@" ;;
    freeze) enter "$1" kill -STOP "$(svcpid "$1" "$2")" ;;
    thaw) enter "$1" kill -CONT "$(svcpid "$1" "$2")" ;;
    crash) crash "$1" ;;
    boot) boot "$1" ;;
    loss) loss "$@" ;;
    delay) delay "$@" ;;
    rate) rate "$@" ;;
    status) status ;;
    _host) host_main "$@" ;;
    _init) host_init "$@" ;;
    _svc) start_svc "$@" ;;
    _nvml) S=/lab place_nvml "" "$1" ;;
    *) sed -n '2,22s/^# \{0,1\}//p' "$SELF"; exit 2 ;;
esac
