//! Order of the participants: in the scene, and as members of the run.

/// Places of the participants of the scene among the members of the run.
///
/// Sums over contacts, bodies and participants follow the order of the members, and a contact points from the
/// earlier member to the later one. Where the members stand in the order of their names, no bit therefore
/// depends on the order in which the scene lists its participants. Users see participants in the scene's
/// order.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    /// The participant of the scene that each member is.
    participants: Vec<usize>,
    /// The member that each participant of the scene is.
    members: Vec<usize>,
}

impl Order {
    /// The order of participants with these names, which differ. Members are sorted by name, or else stand as
    /// in the scene.
    pub(crate) fn new(names: &[&str], by_name: bool) -> Self {
        let mut participants: Vec<usize> = (0..names.len()).collect();
        if by_name {
            participants.sort_by_key(|&participant| names[participant]);
        }
        let mut members = vec![0; names.len()];
        for (member, &participant) in participants.iter().enumerate() {
            members[participant] = member;
        }
        Self { participants, members }
    }

    /// The participant of the scene that is this member.
    pub(crate) fn participant(&self, member: usize) -> usize {
        self.participants[member]
    }

    /// The member that is this participant of the scene.
    pub(crate) fn member(&self, participant: usize) -> usize {
        self.members[participant]
    }

    /// Values of the scene's participants, in the order of the members.
    pub(crate) fn of_members<'a, T>(&self, of_scene: &'a [T]) -> Vec<&'a T> {
        self.participants.iter().map(|&participant| &of_scene[participant]).collect()
    }

    /// Values of members, in the scene's order.
    pub(crate) fn of_scene<'a, T>(&'a self, of_members: &'a [T]) -> impl Iterator<Item = &'a T> {
        self.members.iter().map(|&member| &of_members[member])
    }

    /// Values of members, moved into the scene's order.
    pub(crate) fn scene_order<T>(&self, of_members: Vec<T>) -> Vec<T> {
        let mut of_scene: Vec<(&usize, T)> = self.participants.iter().zip(of_members).collect();
        of_scene.sort_by_key(|&(&participant, _)| participant);
        of_scene.into_iter().map(|(_, value)| value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Order;

    #[test]
    fn members_stand_by_name_and_users_see_the_scene() {
        let names = ["c", "a", "b"];
        let order = Order::new(&names, true);
        let members = order.of_members(&names);
        assert_eq!(members, [&"a", &"b", &"c"]);
        assert_eq!(order.of_scene(&members).map(|name| **name).collect::<Vec<_>>(), names);
        assert_eq!(order.scene_order(members), [&"c", &"a", &"b"]);
        for (participant, name) in names.iter().enumerate() {
            assert_eq!(order.participant(order.member(participant)), participant);
            assert_eq!(Order::new(&names, false).member(participant), participant, "{name}");
        }
    }
}
