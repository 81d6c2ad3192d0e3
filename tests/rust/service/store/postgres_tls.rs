//! TLS to the server: whom a store believes, and whom it does not.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use ginnel_api::Origin;
use ginnel_store::{Store, StoreError};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
};

use crate::engines::{self, PostgresServer};
use crate::service::support::Folder;

/// Writes the certificate of a new authority, and one for `localhost` with its key that it has signed.
fn certificates(folder: &Path, name: &str) -> [PathBuf; 3] {
    let authority_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap();
    let (issuer, key) = (Issuer::new(params, authority_key), KeyPair::generate().unwrap());
    let leaf = CertificateParams::new(["localhost".to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &issuer).unwrap();
    let contents = [authority.pem(), leaf.pem(), key.serialize_pem()];
    let paths = ["ca.pem", "leaf.pem", "key.pem"].map(|end| folder.join(format!("{name}-{end}")));
    for (path, content) in paths.iter().zip(contents) {
        std::fs::write(path, content).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
        chown(path, Some(engines::owner()), Some(engines::owner())).unwrap();
    }
    paths
}

fn open(host: &str, port: u16, authority: &Path) -> Result<Store, StoreError> {
    let authority = authority.display();
    let address = format!(
        "postgres://ginnel@{host}:{port}/postgres?sslmode=verify-full&sslrootcert={authority}"
    );
    Store::open_postgres(address.parse().unwrap(), Origin::default())
}

fn refusal(opened: Result<Store, StoreError>) -> String {
    opened.err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn only_a_server_with_a_certificate_of_the_authority_for_its_host_is_believed() {
    let folder = Folder::new();
    let root = folder.file("");
    std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o755)).unwrap();
    let [authority, leaf, key] = certificates(&root, "server");
    let [stranger, _, _] = certificates(&root, "stranger");
    let (leaf, key) =
        (format!("ssl_cert_file={}", leaf.display()), format!("ssl_key_file={}", key.display()));
    let server =
        PostgresServer::start(&["-c", "fsync=off", "-c", "ssl=on", "-c", &leaf, "-c", &key]);
    let port = server.port();

    let store = open("localhost", port, &authority).unwrap();
    let encrypted = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE application_name = 'ginnel'";
    assert_eq!(server.psql("postgres", encrypted), "t");
    store.close();

    let other_authority = refusal(open("localhost", port, &stranger));
    assert!(other_authority.contains("UnknownIssuer"), "{other_authority}");
    let other_host = refusal(open("127.0.0.1", port, &authority));
    assert!(other_host.contains("certificate not valid for name"), "{other_host}");
}

#[test]
fn a_server_without_tls_is_refused() {
    let folder = Folder::new();
    let [authority, ..] = certificates(&folder.file(""), "server");

    let refused = refusal(open("localhost", engines::server().port(), &authority));

    assert!(refused.contains("does not support TLS"), "{refused}");
}
