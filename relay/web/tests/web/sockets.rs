//! A Unix socket serves like a port, for its owner only, and ends with the relay.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

#[tokio::test]
async fn a_unix_socket_is_for_its_owner_and_does_not_outlive_the_relay() {
    use nodeglass_web::{BindError, bind};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("relay.sock");
    let addr = format!("unix:{}", path.display()).parse().unwrap();
    let listeners = bind(std::slice::from_ref(&addr), None).await.unwrap();
    assert_eq!(path.symlink_metadata().unwrap().mode() & 0o777, 0o600);
    assert_eq!(listeners.addresses(), std::slice::from_ref(&addr));
    assert!(matches!(bind(std::slice::from_ref(&addr), None).await, Err(BindError::InUse { .. })));
    drop(listeners);
    assert!(!path.exists());
    // A file left by a killed relay gives way; a file of another kind does not.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    drop(bind(std::slice::from_ref(&addr), None).await.unwrap());
    fs::write(&path, "mine").unwrap();
    assert!(matches!(bind(std::slice::from_ref(&addr), None).await, Err(BindError::NotASocket(_))));
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
}

#[tokio::test]
async fn a_unix_socket_is_served_like_a_port() {
    use axum::{Router, routing::get};
    use nodeglass_access::peer::Peer;
    use nodeglass_web::{Connection, bind};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("relay.sock");
    let listeners = bind(&[format!("unix:{}", path.display()).parse().unwrap()], None).await.unwrap();
    let router = Router::new().route("/", get(|who: Connection| async move { format!("{:?}", who.peer) }));
    let (end, ending) = tokio::sync::watch::channel(false);
    let serving = tokio::spawn(nodeglass_web::serve(listeners, router, Default::default(), ending));
    let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    assert!(reply.ends_with(&format!("{:?}", Peer::owner())), "{reply}");
    end.send(true).unwrap();
    serving.await.unwrap();
    assert!(!path.exists());
}
