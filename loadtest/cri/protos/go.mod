// The protocols of which Headwater speaks a part: what Go is asked to fetch.
module headwater/protos

go 1.26.0

require (
	github.com/container-storage-interface/spec v1.9.0
	github.com/containerd/containerd/api v1.12.0
	k8s.io/cri-api v0.37.0
	k8s.io/kubelet v0.36.3
)
