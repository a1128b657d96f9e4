//! TLS between nodes and from clients, with the certificates of `tests/certificates/`.

use std::process::Output;

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

fn put(cluster: &Cluster, tls: &[&str]) -> Output {
    cluster.run(&[&["put", "key", "value", "--patience", "3"], tls].concat())
}

#[test]
fn only_those_with_a_certificate_get_in() {
    let cluster = Cluster::of_three(&OURS);
    let done = cluster.run(&[&["put", "key", "value"], &OURS[..]].concat());
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let got = cluster.run(&[&["get", "key"], &OURS[..]].concat());
    assert_eq!(text(&got.stdout), "value\n", "{}", text(&got.stderr));

    for (who, tls) in [
        ("no TLS", &[][..]),
        ("no certificate", &OURS[..2]),
        ("a foreign certificate", &FOREIGN[..]),
        ("another cluster's", &ELSEWHERE[..]),
    ] {
        let refused = put(&cluster, tls);
        println!("{who}: {}", text(&refused.stderr));
        assert_eq!(refused.status.code(), Some(1), "{who}: {}", text(&refused.stderr));
    }
}
