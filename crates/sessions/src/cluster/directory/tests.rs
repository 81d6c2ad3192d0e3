use super::*;
use crate::cluster::rows::EndpointRow;

fn node(id: &str, epoch: u64, beat: u64) -> (String, Option<NodeDocument>) {
    let record = NodeRecord { name: id.to_owned(), epoch, ..NodeRecord::default() };
    let state = NodeState { beat, ..NodeState::default() };
    (
        id.to_owned(),
        Some(NodeDocument { id: id.to_owned(), state, record, ..NodeDocument::default() }),
    )
}

fn row(id: &str, node_id: &str, epoch: u64) -> TunnelDocument {
    let owner = RowOwner { node_id: node_id.to_owned(), epoch };
    TunnelDocument { id: id.to_owned(), owner, ..TunnelDocument::default() }
}

fn named(id: &str, node_id: &str, epoch: u64, key: EndpointKey) -> TunnelDocument {
    let endpoint = EndpointRow { key, ..EndpointRow::default() };
    TunnelDocument { endpoint: Some(endpoint), ..row(id, node_id, epoch) }
}

fn labeled(id: &str, node_id: &str, label: &str) -> TunnelDocument {
    let labels = BTreeMap::from([("app".to_owned(), label.to_owned())]);
    TunnelDocument { labels: Some(labels), ..row(id, node_id, 1) }
}

/// The directory of `node_a`, with two other nodes in epoch 1.
fn directory(tunnels: Vec<TunnelDocument>) -> Directory {
    let directory = Directory::new("node_a");
    let nodes = ["node_a", "node_b", "node_c"].map(|id| node(id, 1, 0));
    let tunnels = tunnels.into_iter().map(|row| (row.id.clone(), Some(row)));
    directory.record_rows(nodes, tunnels, Instant::now(), 0);
    directory
}

fn ids(tunnels: &[Arc<RemoteTunnel>]) -> Vec<&str> {
    tunnels.iter().map(|tunnel| &*tunnel.id).collect()
}

#[test]
fn a_tunnel_of_another_node_is_found_by_name_port_and_identifier() {
    let directory = directory(vec![
        named("tn_1", "node_b", 1, EndpointKey::http("a.test", 443)),
        named("tn_2", "node_c", 1, EndpointKey::http("a.test", 443)),
        named("tn_3", "node_b", 1, EndpointKey::http("*.wild.test", 80)),
        named("tn_4", "node_b", 1, EndpointKey::port(2000)),
        named("tn_5", "node_b", 1, EndpointKey::bytes("db.internal", 5432)),
        named("tn_6", "node_a", 1, EndpointKey::port(3000)),
    ]);

    let at_host = |host: &str, port| {
        directory.at_host(host, port).map(|(_, tunnels)| tunnels).unwrap_or_default()
    };

    assert_eq!(ids(&at_host("a.test", 443)), ["tn_2", "tn_1"], "of both nodes");
    assert_eq!(ids(&at_host("a.test", 80)), ["tn_2", "tn_1"], "as on one node");
    assert_eq!(ids(&at_host("x.y.wild.test", 443)), ["tn_3"]);
    assert!(at_host("wild.test", 80).is_empty());
    assert_eq!(ids(&directory.tunnels_at(&EndpointKey::port(2000))), ["tn_4"]);
    assert_eq!(ids(&directory.tunnels_at(&EndpointKey::bytes("db.internal", 5432))), ["tn_5"]);
    assert!(directory.tunnels_at(&EndpointKey::port(3000)).is_empty(), "its own are not there");
    assert_eq!(&*directory.find_tunnel("tn_4").unwrap().node_id, "node_b");
    assert_eq!(directory.tunnel_count(), 5);
}

#[test]
fn labeled_tunnels_are_found_in_turn() {
    let directory = directory(vec![
        labeled("tn_1", "node_b", "shop"),
        labeled("tn_2", "node_c", "shop"),
        labeled("tn_3", "node_c", "mail"),
    ]);
    let labels = BTreeMap::from([("app".to_owned(), "shop".to_owned())]);

    assert_eq!(ids(&directory.tunnels_with_labels(&labels, 0, 9, |_| true)), ["tn_1", "tn_2"]);
    assert_eq!(ids(&directory.tunnels_with_labels(&labels, 1, 1, |_| true)), ["tn_2"]);
    assert!(directory.tunnels_with_labels(&BTreeMap::new(), 0, 9, |_| true).is_empty());
}

#[test]
fn one_of_the_nodes_that_live_is_the_first() {
    let (first, other) = (Directory::new("node_a"), Directory::new("node_b"));
    let all = ["node_a", "node_b"].map(|id| node(id, 1, 0));
    let now = Instant::now();
    for directory in [&first, &other] {
        directory.record_rows(all.clone(), [], now, 0);
    }
    assert!(first.is_first(now) && !other.is_first(now));

    other.record_rows([("node_a".to_owned(), None)], [], now, 0);

    assert!(other.is_first(now));
}

#[test]
fn the_rows_of_a_fenced_epoch_are_void() {
    let key = EndpointKey::http("a.test", 443);
    let directory = directory(vec![named("tn_1", "node_b", 1, key.clone())]);
    let mut changes = directory.subscribe();

    directory.record_rows([node("node_b", 2, 0)], [], Instant::now(), 0);
    assert!(changes.has_changed().unwrap());
    assert!(directory.tunnels_at(&key).is_empty() && directory.find_tunnel("tn_1").is_none());

    let again = named("tn_1", "node_b", 2, key.clone());
    directory.record_rows([], [("tn_1".to_owned(), Some(again))], Instant::now(), 0);
    assert_eq!(ids(&directory.tunnels_at(&key)), ["tn_1"], "they are announced again");

    changes.mark_unchanged();
    directory.record_rows([], [("tn_1".to_owned(), None)], Instant::now(), 0);
    assert!(changes.has_changed().unwrap() && directory.tunnels_at(&key).is_empty());
    assert!(directory.read_state().by_key.is_empty(), "nothing is kept of a tunnel that is gone");
}

#[test]
fn a_fenced_node_that_is_connected_is_found_until_another_has_the_endpoint() {
    let key = EndpointKey::http("a.test", 443);
    let own = named("tn_1", "node_b", 1, key.clone());
    let directory = directory(vec![own.clone()]);
    let node_b: Arc<str> = "node_b".into();
    let fenced = |epoch| {
        let (id, node) = node("node_b", epoch, 0);
        let state = NodeState { fenced: true, ..NodeState::default() };
        (id, node.map(|node| NodeDocument { state, ..node }))
    };
    let note = |nodes: Vec<_>, tunnels: Vec<(&str, Option<TunnelDocument>)>| {
        let tunnels = tunnels.into_iter().map(|(id, row)| (id.to_owned(), row));
        directory.record_rows(nodes, tunnels, Instant::now(), 0);
    };
    let found =
        || ids(&directory.tunnels_at(&key)).iter().map(|id| id.to_string()).collect::<Vec<_>>();
    directory.record_session(&node_b, true);

    note(vec![fenced(2)], vec![]);
    assert_eq!(
        (found().as_slice(), directory.claimed_at(&key).len()),
        (&["tn_1".to_owned()][..], 0)
    );
    note(vec![], vec![("tn_1", None)]);
    note(vec![("node_b".to_owned(), None)], vec![]);
    assert_eq!(found(), ["tn_1"], "its rows are removed");
    assert!(directory.ended_nodes(Instant::now(), Duration::ZERO).is_empty(), "once");

    note(vec![], vec![("tn_2", Some(named("tn_2", "node_c", 1, key.clone())))]);
    assert_eq!(found(), ["tn_2"]);
    note(vec![], vec![("tn_2", None)]);
    assert_eq!(found(), ["tn_1"]);

    // It begins again, and announces what it has; by its next beat it has done so.
    note(vec![node("node_b", 3, 1)], vec![]);
    assert_eq!(found(), ["tn_1"]);
    note(vec![node("node_b", 3, 2)], vec![]);
    assert!(found().is_empty());

    note(vec![], vec![("tn_1", Some(named("tn_1", "node_b", 3, key.clone())))]);
    note(vec![fenced(4)], vec![("tn_1", None)]);
    directory.record_session(&node_b, false);
    assert!(found().is_empty() && directory.read_state().by_key.is_empty());
    assert!(directory.read_state().removed_tunnels.is_empty());
}

#[test]
fn who_is_about_to_stop_is_found_after_the_others() {
    let key = EndpointKey::http("a.test", 443);
    let both = ["node_b", "node_c"].map(|id| named(&format!("tn_{id}"), id, 1, key.clone()));
    let directory = directory(both.to_vec());
    let first = || directory.tunnels_at(&key)[0].node_id.to_string();
    assert_eq!((first().as_str(), directory.leaving_tunnels().len()), ("node_c", 0));

    let (id, node) = node("node_c", 1, 0);
    let state = NodeState { draining: true, ..NodeState::default() };
    let leaving = node.map(|node| NodeDocument { state, ..node });
    directory.record_rows([(id, leaving)], [], Instant::now(), 0);

    assert_eq!((first().as_str(), directory.tunnels_at(&key).len()), ("node_b", 2));
    assert_eq!(directory.leaving_tunnels(), ["tn_node_c"]);
}

#[test]
fn what_has_ended_is_not_found_though_its_row_is_read_again() {
    let key = EndpointKey::http("a.test", 443);
    let both = ["node_b", "node_c"].map(|id| named(&format!("tn_{id}"), id, 1, key.clone()));
    let directory = directory(both.to_vec());
    let mut changes = directory.subscribe();

    directory.record_ended(vec!["tn_node_c".to_owned(), "tn_unknown".to_owned()]);

    assert!(changes.has_changed().unwrap());
    let again = both.clone().map(|row| (row.id.clone(), Some(row)));
    directory.record_rows([], again, Instant::now(), 0);
    assert_eq!(ids(&directory.tunnels_at(&key)), ["tn_node_b"]);

    changes.mark_unchanged();
    directory.record_rows([], [("tn_node_c".to_owned(), None)], Instant::now(), 0);
    let late = named("tn_unknown", "node_b", 1, key.clone());
    directory.record_rows([], [("tn_unknown".to_owned(), Some(late))], Instant::now(), 0);
    assert_eq!(ids(&directory.tunnels_at(&key)), ["tn_node_b"], "its row is read after that");
    directory.record_rows([], [("tn_unknown".to_owned(), None)], Instant::now(), 0);
    assert!(directory.read_state().ended.is_empty(), "nothing is kept of a tunnel without a row");
}

#[test]
fn a_row_may_be_read_before_its_node() {
    let directory = directory(vec![row("tn_1", "node_d", 5)]);
    assert!(directory.find_tunnel("tn_1").is_none());

    directory.record_rows([node("node_d", 5, 0)], [], Instant::now(), 0);

    assert!(directory.find_tunnel("tn_1").is_some());
}

#[test]
fn a_node_lapses_when_its_beat_is_not_seen_to_change() {
    let directory = directory(Vec::new());
    let began = Instant::now();
    let lapsed = |after: Duration| {
        let nodes = directory.lapsed_nodes(began + after).into_iter();
        nodes.map(|node| node.id.to_string()).collect::<Vec<_>>()
    };
    let changes = directory.subscribe();

    directory.record_rows([node("node_b", 1, 1)], [], began + Duration::from_secs(10), 0);
    assert!(!changes.has_changed().unwrap(), "a beat is no change");
    assert_eq!(lapsed(Duration::from_secs(14)), [""; 0]);
    assert_eq!(lapsed(Duration::from_secs(16)), ["node_c"], "and never the own one");

    // Read again, it has not beaten again.
    directory.record_rows([node("node_b", 1, 1)], [], began + Duration::from_secs(20), 0);
    assert_eq!(lapsed(Duration::from_secs(26)), ["node_b", "node_c"]);
    assert!(directory.is_alone(began + Duration::from_secs(26)));
    assert!(!directory.is_alone(began + Duration::from_secs(14)));

    directory.renew_leases(began + Duration::from_secs(26));
    assert_eq!(lapsed(Duration::from_secs(40)), [""; 0]);
}

#[test]
fn who_has_stopped_or_is_fenced_does_not_lapse_again() {
    let directory = directory(Vec::new());
    let ended = |id: &str, state| {
        let (id, node) = node(id, 1, 0);
        (id, node.map(|node| NodeDocument { state, ..node }))
    };
    let fenced = NodeState { fenced: true, ..NodeState::default() };
    let stopped = NodeState { stopped: true, ..NodeState::default() };

    let now = Instant::now();
    directory.record_rows([ended("node_b", fenced), ended("node_c", stopped)], [], now, 0);

    let later = now + Duration::from_secs(60);
    assert!(directory.lapsed_nodes(later).is_empty());
    let is_lapsed = |id| directory.find_node(id).unwrap().is_lapsed(later);
    assert_eq!((is_lapsed("node_b"), is_lapsed("node_c")), (true, false));
}
