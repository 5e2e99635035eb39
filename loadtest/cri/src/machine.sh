# The first process of the namespaces; $1 is the folder of the data. It reaps what is left without
# a parent, as the first process must.
set -eu
# The runtime's own paths: sockets of shims, the state of runc, network namespaces.
mount -t tmpfs -o mode=0755 tmpfs /run
mkdir -p /var/lib/cni "$1/cni-state"
mount --bind "$1/cni-state" /var/lib/cni
ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet
# Mounts reach the pods that ask for them, and never leave this namespace.
mount --make-rshared /
echo ready
sleep infinity &
wait
