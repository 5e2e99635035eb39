//! Which container has which processors for itself. Pure: decided from the machine, what is given away, and the pod.
//!
//! The rules are those of a kubelet's static policy (`pkg/kubelet/cm/cpumanager/policy_static.go`): a container of a
//! guaranteed pod that requests whole processors has them for itself; all others share the rest, of which the reserved ones
//! are always a part. An init container leaves its processors to the containers after it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Pod};
use serde::{Deserialize, Serialize};

use crate::container::cpu_set::CpuSet;
use crate::container::qos::QosClass;
use crate::container::requests::container_requests;
use crate::pod::{PodUid, init_containers, is_sidecar, main_containers};

/// A processor, and its place in the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cpu {
    /// Its number.
    pub(crate) id: u32,
    /// Its socket.
    pub(crate) package: u32,
    /// Its core in the socket. Processors of one core share its units.
    pub(crate) core: u32,
}

/// The processors of containers, by pod and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Allocations(BTreeMap<PodUid, BTreeMap<String, CpuSet>>);

/// The machine has fewer processors left than a pod requests for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Allocate failed due to not enough cpus available to satisfy request: requested={requested}, \
     available={available}, which is unexpected"
)]
pub(crate) struct TooFewCpus {
    requested: usize,
    available: usize,
}

/// The number of processors that the container has for itself under the static policy.
pub fn exclusive_cpus(pod: &Pod, container: &Container) -> usize {
    let milli = container_requests(container).cpu_milli;
    let is_whole = milli > 0 && milli.is_multiple_of(1000);
    if !is_whole || QosClass::of(pod) != QosClass::Guaranteed {
        return 0;
    }
    usize::try_from(milli / 1000).unwrap_or(usize::MAX)
}

/// The processors that are never given away: the first ones, as many as are reserved in part.
pub(crate) fn reserved(machine: &[Cpu], cpu_milli: u64) -> CpuSet {
    let count = usize::try_from(cpu_milli.div_ceil(1000)).unwrap_or(usize::MAX);
    let all: CpuSet = machine.iter().map(|cpu| cpu.id).collect();
    take(machine, &all, count.min(all.len()))
}

impl Allocations {
    /// The processors that the container has for itself.
    pub(crate) fn of(&self, pod: &PodUid, container: &str) -> Option<&CpuSet> {
        self.0.get(pod)?.get(container)
    }

    /// Whether the pod has processors for itself.
    pub(crate) fn contains(&self, pod: &PodUid) -> bool {
        self.0.contains_key(pod)
    }

    /// All processors that are given away.
    pub(crate) fn taken(&self) -> CpuSet {
        self.0.values().flat_map(BTreeMap::values).flat_map(CpuSet::iter).collect()
    }

    /// The pods that have processors.
    pub(crate) fn pods(&self) -> impl Iterator<Item = &PodUid> {
        self.0.keys()
    }

    /// Gives a pod its processors, all or none. Does nothing if it has them.
    ///
    /// # Errors
    /// There are too few.
    pub(crate) fn allocate(
        &mut self,
        uid: &PodUid,
        pod: &Pod,
        machine: &[Cpu],
        reserved: &CpuSet,
    ) -> Result<(), TooFewCpus> {
        if self.contains(uid) {
            return Ok(());
        }
        let all: CpuSet = machine.iter().map(|cpu| cpu.id).collect();
        let mut free = all.difference(reserved).difference(&self.taken());
        let (mut own, mut reusable) = (BTreeMap::new(), CpuSet::default());
        let steps = init_containers(pod).iter().map(|it| (it, !is_sidecar(it)));
        let mains = main_containers(pod).iter().map(|it| (it, false));
        for (container, is_step) in steps.chain(mains) {
            let requested = exclusive_cpus(pod, container);
            if requested == 0 {
                continue;
            }
            let available = reusable.len() + free.len();
            if requested > available {
                return Err(TooFewCpus { requested, available });
            }
            let again = take(machine, &reusable, requested.min(reusable.len()));
            let new = take(machine, &free, requested - again.len());
            free = free.difference(&new);
            let cpus = again.union(&new);
            reusable = if is_step { reusable.union(&cpus) } else { reusable.difference(&cpus) };
            own.insert(container.name.clone(), cpus);
        }
        if !own.is_empty() {
            self.0.insert(uid.clone(), own);
        }
        Ok(())
    }

    /// Takes back the processors of a pod. Returns whether it had any.
    pub(crate) fn release(&mut self, pod: &PodUid) -> bool {
        self.0.remove(pod).is_some()
    }

    /// Whether these can be the allocations of this machine: its processors, and none for two pods.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) fn check(&self, machine: &[Cpu]) -> Result<(), String> {
        let all: CpuSet = machine.iter().map(|cpu| cpu.id).collect();
        let mut seen = CpuSet::default();
        for (pod, containers) in &self.0 {
            let own: CpuSet = containers.values().flat_map(CpuSet::iter).collect();
            if !own.is_subset(&all) {
                return Err(format!("pod {pod} has {own}, and the machine has {all}"));
            }
            if !own.is_disjoint(&seen) {
                return Err(format!("pod {pod} has {own}, of which another pod has a part"));
            }
            seen = seen.union(&own);
        }
        Ok(())
    }
}

/// So many processors of a set: whole sockets first, then whole cores, then those of cores that others have a part of.
fn take(machine: &[Cpu], from: &CpuSet, count: usize) -> CpuSet {
    let mut taken = BTreeSet::new();
    let packages = groups(machine, |cpu| (cpu.package, 0));
    let cores = groups(machine, |cpu| (cpu.package, cpu.core));
    for group in packages.values().chain(cores.values()) {
        let is_free = group.iter().all(|id| from.contains(*id) && !taken.contains(id));
        if is_free && group.len() <= count - taken.len() {
            taken.extend(group);
        }
    }
    let mut rest: Vec<(usize, u32)> = Vec::new();
    for group in cores.values() {
        let free = group.iter().filter(|id| from.contains(**id) && !taken.contains(*id));
        let free: Vec<u32> = free.copied().collect();
        rest.extend(free.iter().map(|id| (free.len(), *id)));
    }
    rest.sort_unstable();
    let missing = count - taken.len();
    taken.extend(rest.into_iter().take(missing).map(|(_, id)| id));
    taken.into_iter().collect()
}

fn groups(machine: &[Cpu], place: impl Fn(&Cpu) -> (u32, u32)) -> BTreeMap<(u32, u32), Vec<u32>> {
    let mut groups: BTreeMap<_, Vec<u32>> = BTreeMap::new();
    for cpu in machine {
        groups.entry(place(cpu)).or_default().push(cpu.id);
    }
    groups
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn uid(name: &str) -> PodUid {
        PodUid::try_from(name.to_owned()).expect("a UID")
    }

    /// A machine whose processors of one core are far apart in number, as on common ones.
    fn machine(packages: u32, cores: u32, threads: u32) -> Vec<Cpu> {
        let places = (0..threads).flat_map(|_| {
            (0..packages).flat_map(move |package| (0..cores).map(move |core| (package, core)))
        });
        (0..).zip(places).map(|(id, (package, core))| Cpu { id, package, core }).collect()
    }

    fn container(name: &str, cpu: &str) -> Value {
        json!({"name": name, "resources": {"limits": {"cpu": cpu, "memory": "1Mi"}}})
    }

    fn pod(init: &[Value], main: &[Value]) -> Pod {
        let spec = json!({"initContainers": init, "containers": main});
        serde_json::from_value(json!({"spec": spec})).expect("a pod")
    }

    fn set(text: &str) -> CpuSet {
        text.parse().expect("a set")
    }

    #[test]
    fn whole_processors_of_guaranteed_pods_are_their_own() {
        let half = container("a", "1500m");
        let mut burstable = container("a", "2");
        burstable["resources"]["requests"] = json!({"cpu": "1"});
        for (own, expected) in
            [(container("a", "2"), 2), (container("a", "2000m"), 2), (half, 0), (burstable, 0)]
        {
            let pod = pod(&[], &[own]);
            assert_eq!(exclusive_cpus(&pod, &main_containers(&pod)[0]), expected, "{pod:?}");
        }
    }

    #[test]
    fn sockets_and_cores_are_given_whole_where_they_can_be() {
        // Two sockets of two cores of two processors: core 0 of socket 0 has 0 and 4.
        let machine = machine(2, 2, 2);
        let all = set("0-7");
        for (from, count, expected) in [
            (&all, 4, "0-1,4-5"),
            (&all, 2, "0,4"),
            (&all, 1, "0"),
            (&all, 3, "0-1,4"),
            (&set("0-3,5-7"), 1, "0"),
            (&set("0-3,5-7"), 3, "0-1,5"),
            (&set("0-3,5-7"), 4, "2-3,6-7"),
            (&all, 8, "0-7"),
            (&all, 0, ""),
        ] {
            assert_eq!(take(&machine, from, count).to_string(), expected, "{count} of {from}");
        }
        assert_eq!(reserved(&machine, 0), set(""));
        assert_eq!(reserved(&machine, 1), set("0"));
        assert_eq!(reserved(&machine, 1500), set("0,4"));
        assert_eq!(reserved(&machine, 1 << 20), all);
    }

    #[test]
    fn an_init_container_leaves_its_processors_to_those_after_it_and_a_sidecar_does_not() {
        let machine = machine(1, 6, 1);
        let mut sidecar = container("sidecar", "1");
        sidecar["restartPolicy"] = json!("Always");
        let init = [container("init", "3"), sidecar];
        let given = pod(&init, &[container("a", "2"), container("b", "1"), container("c", "500m")]);
        let mut allocations = Allocations::default();
        allocations.allocate(&uid("u"), &given, &machine, &set("0")).expect("enough");
        let of = |name| allocations.of(&uid("u"), name).map(CpuSet::to_string);
        assert_eq!(of("init").as_deref(), Some("1-3"));
        assert_eq!(of("sidecar").as_deref(), Some("1"));
        assert_eq!(of("a").as_deref(), Some("2-3"));
        assert_eq!(of("b").as_deref(), Some("4"));
        assert_eq!(of("c"), None);
        let two = pod(&[], &[container("a", "2")]);
        let mut after = allocations.clone();
        let error = after.allocate(&uid("v"), &two, &machine, &set("0")).expect_err("one is left");
        let words = "Allocate failed due to not enough cpus available to satisfy request: \
                     requested=2, available=1, which is unexpected";
        assert_eq!(error.to_string(), words);
        assert_eq!(after, allocations, "all or none");
    }

    #[test]
    fn allocations_of_another_machine_or_of_two_pods_are_none() {
        let read = |text: Value| serde_json::from_value::<Allocations>(text).expect("read");
        let machine = machine(1, 4, 1);
        read(json!({"u": {"a": "1", "b": "1-2"}, "v": {"a": "3"}})).check(&machine).expect("whole");
        let wrong = read(json!({"u": {"a": "1-2"}, "v": {"a": "2"}})).check(&machine);
        assert!(wrong.expect_err("twice").contains("another pod"));
        let wrong = read(json!({"u": {"a": "4"}})).check(&machine);
        assert_eq!(wrong.expect_err("too many"), "pod u has 4, and the machine has 0-3");
        serde_json::from_value::<Allocations>(json!({"u": {"a": "x"}})).expect_err("no set");
        serde_json::from_value::<Allocations>(json!({"../u": {"a": "1"}})).expect_err("no UID");
    }

    #[derive(Clone, Debug)]
    enum Step {
        Allocate(usize, Vec<u64>),
        Release(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let cpus = prop::collection::vec(0_u64..5, 1..4);
        prop_oneof![
            2 => (0_usize..6, cpus).prop_map(|(pod, cpus)| Step::Allocate(pod, cpus)),
            1 => (0_usize..6).prop_map(Step::Release),
        ]
    }

    proptest! {
        #[test]
        fn no_processor_has_two_owners_and_none_is_lost(
            shape in (1_u32..3, 1_u32..5, 1_u32..3),
            reserved_milli in 1_u64..3000,
            steps in prop::collection::vec(step(), 0..40),
        ) {
            let machine = machine(shape.0, shape.1, shape.2);
            let reserved = reserved(&machine, reserved_milli);
            let mut allocations = Allocations::default();
            for step in steps {
                let before = allocations.clone();
                let free = machine.len() - reserved.len() - before.taken().len();
                match step {
                    Step::Release(pod) => {
                        allocations.release(&uid(&format!("u{pod}")));
                    }
                    Step::Allocate(number, cpus) => {
                        let (uid, wanted) = (uid(&format!("u{number}")), cpus.iter().sum::<u64>());
                        let names = (0..).zip(&cpus);
                        let main: Vec<_> = names
                            .map(|(at, cpus)| container(&format!("c{at}"), &cpus.to_string()))
                            .collect();
                        let given = pod(&[], &main);
                        // A container with none makes the pod burstable.
                        let is_guaranteed = cpus.iter().all(|cpus| *cpus > 0);
                        let wanted = usize::try_from(wanted).expect("few");
                        match allocations.allocate(&uid, &given, &machine, &reserved) {
                            Err(_) => {
                                prop_assert!(is_guaranteed && wanted > free);
                                prop_assert_eq!(&allocations, &before);
                            }
                            Ok(()) if before.contains(&uid) => prop_assert_eq!(&allocations, &before),
                            Ok(()) => {
                                for (at, cpus) in cpus.iter().enumerate().filter(|_| is_guaranteed) {
                                    let own = allocations.of(&uid, &format!("c{at}")).expect("its own");
                                    prop_assert_eq!(own.len() as u64, *cpus);
                                    prop_assert!(own.is_disjoint(&before.taken()));
                                }
                                let more = if is_guaranteed { wanted } else { 0 };
                                let taken = before.taken().len() + more;
                                prop_assert_eq!(allocations.taken().len(), taken);
                            }
                        }
                    }
                }
                allocations.check(&machine).expect("whole");
                prop_assert!(allocations.taken().is_disjoint(&reserved));
            }
        }
    }
}
