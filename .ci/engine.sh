#!/usr/bin/env bash
# A container engine for CI on a bare Debian or Ubuntu machine, as root. Users of the project never need this.
#
#   eval "$(.ci/engine.sh start DIR)"   install what is missing, start dockerd; prints what to export
#   .ci/engine.sh status DIR            exit code 0 while it answers
#   .ci/engine.sh stop DIR              remove its containers and networks, stop it; keeps images in DIR/data
#   .ci/engine.sh purge DIR             stop, and remove DIR
#
# start is idempotent. An engine that answers already is used as it is, and stop leaves it alone.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# mmdebstrap makes node images; it is no part of the engine, but the same jobs need it.
packages=(docker.io iptables iproute2 mmdebstrap debian-archive-keyring)

say() { echo "engine: $*" >&2; }
die() { echo "error: $1"$'\n'"  to fix: $2" >&2; exit 2; }

[ $# = 2 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
verb=$1
[ "$verb" = start ] && mkdir -p "$2"
dir=$(realpath -m "$2")
socket=unix://$dir/docker.sock

ours() { docker -H "$socket" "$@"; }
answers() { [ -S "$dir/docker.sock" ] && command -v docker >/dev/null && timeout 10 docker -H "$socket" version >/dev/null 2>&1; }
pid() { local p; p=$(cat "$dir/dockerd.pid" 2>/dev/null) && grep -qz -- "--pidfile=$dir/" "/proc/$p/cmdline" 2>/dev/null && echo "$p"; }

install_packages() {
  local missing=() package
  for package in "${packages[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] && return
  say "installing ${missing[*]}"
  {
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${missing[@]}"
  } >"$dir/apt.log" 2>&1 || die "packages could not be installed: $(grep -m1 '^E:' "$dir/apt.log")" "see $dir/apt.log"
}

start() {
  [ "$(id -u)" = 0 ] || die "starting an engine needs root" "run it with sudo"
  [ ${#dir} -le 60 ] || die "$dir is too long a path for the engine's sockets" "name a shorter directory"
  if answers; then say "dockerd answers on $socket"; print_env; return; fi
  if [ -n "${DOCKER_HOST-}" ] || [ -S /var/run/docker.sock ] && timeout 10 docker version >/dev/null 2>&1; then
    say "an engine answers already (${DOCKER_HOST:-/var/run/docker.sock}); it is used"
    return
  fi
  install_packages
  local runtime=()
  # Bit 24: CAP_SYS_RESOURCE. Machines that are containers themselves often lack it.
  if ! (( 0x$(awk '/^CapBnd/ {print $2}' /proc/self/status) >> 24 & 1 )); then
    say "this machine lacks CAP_SYS_RESOURCE: privileged containers run without it"
    install -m 755 "$here/runc-within-bounds" "$dir/runc-within-bounds"
    runtime=("--add-runtime=bounded=$dir/runc-within-bounds" "--default-runtime=bounded")
  fi
  rm -f "$dir/dockerd.pid"
  # Two clusters of six nodes need about 200; many machines allow 128.
  local instances=/proc/sys/fs/inotify/max_user_instances
  if [ "$(cat $instances)" -lt 1024 ]; then
    say "raising fs.inotify.max_user_instances from $(cat $instances) to 1024"
    cat $instances >"$dir/inotify-instances"
    echo 1024 >$instances
  fi
  iptables -S FORWARD | head -1 >"$dir/forward-policy" # dockerd sets it to DROP and leaves it so
  # The address range is away from Docker's default, so that a machine whose own network is 172.17/16 keeps working.
  setsid nohup dockerd "--data-root=$dir/data" "--exec-root=$dir/exec" "--pidfile=$dir/dockerd.pid" "--host=$socket" \
    "${runtime[@]}" --bip=10.213.0.1/24 --default-address-pool=base=10.214.0.0/16,size=24 \
    </dev/null >"$dir/dockerd.log" 2>&1 &
  local started=$!
  for _ in $(seq 150); do
    answers && break
    kill -0 "$started" 2>/dev/null || die "dockerd ended at once: $(grep -v level=info "$dir/dockerd.log" | tail -1)" "see $dir/dockerd.log"
    sleep 0.2
  done
  answers || { stop; die "dockerd did not answer within 30 s" "see $dir/dockerd.log"; }
  say "dockerd $(ours version -f '{{.Server.Version}}') answers on $socket (images in $dir/data)"
  print_env
}

print_env() { echo "export DOCKER_HOST=$socket"; }

stop() {
  local running containers
  if answers; then
    containers=$(ours ps -aq)
    if [ -n "$containers" ]; then
      say "removing $(wc -w <<<"$containers") containers"
      ours rm -fv $containers >/dev/null
    fi
    ours network prune -f >/dev/null
    ours volume prune -f >/dev/null
  fi
  if running=$(pid); then
    say "stopping dockerd (process $running)"
    kill "$running"
    for _ in $(seq 150); do [ -d "/proc/$running" ] || break; sleep 0.2; done
    if [ -d "/proc/$running" ]; then say "it does not stop; killing it"; kill -9 "$running"; fi
    ip link delete docker0 2>/dev/null || true
    remove_rules
    if [ -s "$dir/inotify-instances" ]; then
      cat "$dir/inotify-instances" >/proc/sys/fs/inotify/max_user_instances
    fi
  fi
  # dockerd leaves its network namespaces mounted when it is killed.
  awk -v dir="$dir/" 'index($5, dir) == 1 {print $5}' /proc/self/mountinfo | sort -r | xargs -r umount -l
  # Its control groups stay, empty.
  local group
  for group in /sys/fs/cgroup/*/docker /sys/fs/cgroup/docker; do
    [ ! -d "$group" ] || find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null || true
  done
  rm -rf "$dir/exec" "$dir/docker.sock" "$dir/dockerd.pid" "$dir/inotify-instances" "$dir/runc-within-bounds"
  say "stopped; images are kept in $dir/data"
}

remove_rules() {
  # dockerd leaves its iptables chains behind; they are named DOCKER*, and rules that jump to them or name its bridge go first.
  local table
  for table in filter nat; do
    iptables -t "$table" -S 2>/dev/null | grep -E '^-A' | grep -E 'DOCKER|docker0|10\.213\.0\.' |
      sed 's/^-A/-D/' | while read -r rule; do eval "iptables -t $table $rule" 2>/dev/null || true; done
    iptables -t "$table" -S 2>/dev/null | awk '/^-N DOCKER/ {print $2}' |
      while read -r chain; do iptables -t "$table" -F "$chain"; iptables -t "$table" -X "$chain"; done
  done
  # shellcheck disable=SC2046
  [ ! -s "$dir/forward-policy" ] || iptables $(cat "$dir/forward-policy")
}

case $verb in
  start) start ;;
  stop) stop ;;
  purge) stop; rm -rf "$dir"; say "removed $dir" ;;
  status) if answers; then say "dockerd answers on $socket"; else say "no engine in $dir"; exit 1; fi ;;
  *) die "unknown verb $verb" "use start, status, stop or purge" ;;
esac
