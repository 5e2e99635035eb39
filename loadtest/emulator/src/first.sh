#!/bin/busybox sh
# The kernel's first process, in the first files: mounts the machine's root, and becomes its first process.
export PATH=/bin
/bin/busybox --install -s /bin
mkdir -p /proc /sys /dev /host /disk /new
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read -r module; do
    insmod "/modules/$module" || echo "the kernel does not take the module $module"
done </modules.order

mount -t virtiofs -o ro host /host
mount -t ext4 /dev/vda /disk
mkdir -p /disk/upper /disk/work /disk/tmp /disk/containerd /disk/headwater
mount -t overlay -o lowerdir=/host,upperdir=/disk/upper,workdir=/disk/work overlay /new
# What cannot lie on an overlay lies on the disk itself.
mkdir -p /new/var/lib/containerd /new/var/lib/headwater
mount --bind /disk/tmp /new/tmp
mount --bind /disk/containerd /new/var/lib/containerd
mount --bind /disk/headwater /new/var/lib/headwater
chmod 1777 /new/tmp

mount -t tmpfs -o mode=0755 tmpfs /new/run
mkdir /new/run/machine
mount -t virtiofs exchange /new/run/machine
for mounted in dev proc sys; do
    mount --move "/$mounted" "/new/$mounted"
done
mkdir -p /new/dev/pts /new/dev/shm
mount -t devpts -o ptmxmode=0666 devpts /new/dev/pts
mount -t tmpfs tmpfs /new/dev/shm
mount -t cgroup2 -o nsdelegate cgroup2 /new/sys/fs/cgroup
ip link set lo up
if [ -e /new/sys/class/net/eth0 ]; then
    ip addr add 10.0.2.15/24 dev eth0
    ip link set eth0 up
fi
hostname edge

if grep -q machine.first=systemd /new/proc/cmdline; then
    mkdir -p /new/run/systemd/system
    cp /new/run/machine/units/* /new/run/systemd/system/
    exec switch_root /new /lib/systemd/systemd --unit=machine.target
fi
exec switch_root /new /bin/sh /run/machine/agent.sh
