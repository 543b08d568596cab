//! What clusterctl takes to another cluster.

use guestcluster_bridge::capi;
use guestcluster_bridge::serve::{Dialect, plan};

use super::kinds;
use super::world::World;

#[test]
fn what_was_moved_goes_without_its_machine_and_service() {
    for dialect in [Dialect::V1Beta1, Dialect::V1Beta2] {
        let mut world = World::settled(dialect, 1, 1);
        // The end of the Cluster, and of its pause, is seen before that of its objects.
        world.seen.cluster = None;
        for name in ["c-cp-1", "c-w-1"] {
            world.seen.machines.get_mut(name).unwrap().owner = None;
            world.delete(name);
        }
        world.delete_cluster();
        let mut moved = world.seen.clone();
        let mark = || Some([(capi::MOVED.to_owned(), String::new())].into());
        for machine in moved.machines.values_mut() {
            machine.object.metadata.annotations = mark();
        }
        moved.infra.as_mut().unwrap().metadata.annotations = mark();
        assert_eq!(plan(&moved, world.now).actions, []);
        moved.machines.clear();
        assert_eq!(plan(&moved, world.now).actions, []);
        // The same objects, deleted by a person.
        assert_eq!(kinds(&world.step()), ["DeleteVm", "DeleteVm"]);
        world.seen.machines.clear();
        assert_eq!(kinds(&world.step()), ["DeleteService"]);
    }
}
