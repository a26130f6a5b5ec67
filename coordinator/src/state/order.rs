//! Order of the participants: in the scene, and in the run.

/// Places of the participants of the scene in the run, which has an order of its own.
///
/// Sums over contacts, bodies and participants follow the run's order, and a contact points from the earlier
/// participant to the later one. Where the run's order is the order of the names, no bit therefore depends on
/// the order in which the scene lists its participants. Users see participants in the scene's order.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    /// Place in the scene of each participant, in the run's order.
    in_scene: Vec<usize>,
    /// Place in the run of each participant, in the scene's order.
    in_run: Vec<usize>,
}

impl Order {
    /// The order of participants with these names, which differ. The run sorts participants by name, or else
    /// has them as in the scene.
    pub(crate) fn new(names: &[&str], by_name: bool) -> Self {
        let mut in_scene: Vec<usize> = (0..names.len()).collect();
        if by_name {
            in_scene.sort_by_key(|&participant| names[participant]);
        }
        let mut in_run = vec![0; names.len()];
        for (run, &scene) in in_scene.iter().enumerate() {
            in_run[scene] = run;
        }
        Self { in_scene, in_run }
    }

    /// Place in the scene of a participant by its place in the run.
    pub(crate) fn in_scene(&self, run: usize) -> usize {
        self.in_scene[run]
    }

    /// Place in the run of a participant by its place in the scene.
    pub(crate) fn in_run(&self, scene: usize) -> usize {
        self.in_run[scene]
    }

    /// Values in the scene's order, moved into the run's order.
    pub(crate) fn run_order<T>(&self, of_scene: Vec<T>) -> Vec<T> {
        let mut of_run: Vec<(&usize, T)> = self.in_run.iter().zip(of_scene).collect();
        of_run.sort_by_key(|&(&run, _)| run);
        of_run.into_iter().map(|(_, value)| value).collect()
    }

    /// Values in the run's order, put into the scene's order.
    pub(crate) fn of_scene<'a, T>(&'a self, of_run: &'a [T]) -> impl Iterator<Item = &'a T> {
        self.in_run.iter().map(|&run| &of_run[run])
    }

    /// Values in the run's order, moved into the scene's order.
    pub(crate) fn scene_order<T>(&self, of_run: Vec<T>) -> Vec<T> {
        let mut of_scene: Vec<(&usize, T)> = self.in_scene.iter().zip(of_run).collect();
        of_scene.sort_by_key(|&(&scene, _)| scene);
        of_scene.into_iter().map(|(_, value)| value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Order;

    #[test]
    fn a_run_sorts_by_name_and_users_see_the_scene() {
        let names = ["c", "a", "b"];
        let order = Order::new(&names, true);
        let of_run = order.run_order(names.to_vec());
        assert_eq!(of_run, ["a", "b", "c"]);
        assert_eq!(order.of_scene(&of_run).copied().collect::<Vec<&str>>(), names);
        assert_eq!(order.scene_order(of_run), ["c", "a", "b"]);
        for (participant, name) in names.iter().enumerate() {
            assert_eq!(order.in_scene(order.in_run(participant)), participant);
            assert_eq!(Order::new(&names, false).in_run(participant), participant, "{name}");
        }
    }
}
