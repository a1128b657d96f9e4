//! TLS between nodes and from clients, with the certificates of `tests/certificates/`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::cluster::{Cluster, text};

macro_rules! certificate {
    ($file:literal) => {
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/certificates/", $file)
    };
}

const OURS: [&str; 6] = [
    "--tls-ca",
    certificate!("ours-ca.pem"),
    "--tls-cert",
    certificate!("ours-node.pem"),
    "--tls-key",
    certificate!("ours-node.key"),
];
/// A certificate that nobody of the cluster believes, of somebody who believes the cluster's.
const FOREIGN: [&str; 6] = [
    "--tls-ca",
    certificate!("ours-ca.pem"),
    "--tls-cert",
    certificate!("foreign-node.pem"),
    "--tls-key",
    certificate!("foreign-node.key"),
];
/// Somebody of another cluster altogether.
const ELSEWHERE: [&str; 6] = [
    "--tls-ca",
    certificate!("foreign-ca.pem"),
    "--tls-cert",
    certificate!("foreign-node.pem"),
    "--tls-key",
    certificate!("foreign-node.key"),
];

#[test]
fn only_those_with_a_certificate_get_in() {
    let mut cluster = Cluster::new(3, 0, &OURS);
    cluster.start_members();
    let done = cluster.run(&[&["put", "key", "value"], &OURS[..]].concat());
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let got = cluster.run(&[&["get", "key"], &OURS[..]].concat());
    assert_eq!(text(&got.stdout), "value\n", "{}", text(&got.stderr));

    let ended = "does not believe this certificate";
    for (who, tls, why) in [
        ("no TLS", &[][..], ended),
        ("no certificate", &OURS[..2], ended),
        ("a foreign certificate", &FOREIGN[..], ended),
        ("another cluster's", &ELSEWHERE[..], "invalid peer certificate: UnknownIssuer"),
    ] {
        let refused = cluster.run(&[&["put", "key", "other", "--patience", "3"], tls].concat());
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{who}: {said}");
        assert!(said.contains(why), "{who}: {said}");
    }
    let got = cluster.run(&[&["get", "key"], &OURS[..]].concat());
    assert_eq!(text(&got.stdout), "value\n", "{}", text(&got.stderr));
}

#[test]
fn a_node_that_the_others_do_not_believe_says_so() {
    let mut cluster = Cluster::new(3, 0, &OURS);
    cluster.start(2);
    cluster.start(1);
    cluster.options = FOREIGN.to_vec();
    let mut node = cluster.command(3).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(node.stderr.take().unwrap()).lines();
    let said = lines.map(Result::unwrap).find(|line| line.contains("does not reach node"));
    node.kill().unwrap();
    node.wait().unwrap();
    let said = said.expect("a reason, before it ends");
    assert!(said.contains("does not believe this certificate"), "{said}");
}
