//! Accounts and credentials of NATS, as `nsc` makes them: signed by an operator whom the server trusts.

use anyhow::{Context, Result};
use base64ct::{Base64UrlUnpadded, Encoding};
use nkeys::KeyPair;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// An operator with accounts that see nothing of each other.
#[derive(Debug)]
pub struct NatsAccounts {
    folder: TempDir,
    config: PathBuf,
}

impl NatsAccounts {
    /// Creates accounts with these names, each with one user and JetStream.
    ///
    /// # Errors
    /// If a key cannot be made, or a file cannot be written.
    pub fn create(names: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let (operator, system) = (KeyPair::new_operator(), KeyPair::new_account());
        let trusted = json!({ "type": "operator", "version": 2, "system_account": system.public_key() });
        let operator_jwt = jwt(&operator, "operator", &operator, &trusted)?;
        let mut preload = vec![(system.public_key(), account_jwt(&operator, "system", &system, 0)?)];
        for name in names {
            let (account, user) = (KeyPair::new_account(), KeyPair::new_user());
            preload.push((account.public_key(), account_jwt(&operator, name, &account, -1)?));
            let rights = json!({
                "type": "user", "version": 2, "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1,
            });
            let user_jwt = jwt(&account, name, &user, &rights)?;
            write_credentials(&folder.path().join(name), &user_jwt, &user.seed()?)?;
        }
        let preload: String = preload.iter().map(|(key, jwt)| format!("  {key}: {jwt}\n")).collect();
        let config = folder.path().join("nats.conf");
        let system = system.public_key();
        let text = format!(
            "operator: {operator_jwt}\nsystem_account: {system}\nresolver: MEMORY\nresolver_preload: {{\n{preload}}}\n"
        );
        fs::write(&config, text)?;
        Ok(Self { folder, config })
    }

    /// The server's configuration.
    ///
    /// # Errors
    /// If the path is not UTF-8.
    pub fn config(&self) -> Result<&str> {
        self.config.to_str().context("a path of our own")
    }

    /// The file with the credentials of an account's user.
    pub fn credentials(&self, account: &str) -> String {
        self.folder.path().join(account).display().to_string()
    }
}

/// An account; `storage` is what JetStream may store for it, -1 for anything.
fn account_jwt(operator: &KeyPair, name: &str, account: &KeyPair, storage: i32) -> Result<String> {
    let limits = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
        "mem_storage": storage, "disk_storage": storage, "streams": storage, "consumer": storage,
    });
    let rights = json!({
        "type": "account", "version": 2, "limits": limits, "default_permissions": { "pub": {}, "sub": {} },
    });
    jwt(operator, name, account, &rights)
}

/// Claims about `subject`, signed by `issuer`.
fn jwt(issuer: &KeyPair, name: &str, subject: &KeyPair, rights: &Value) -> Result<String> {
    let header = json!({ "typ": "JWT", "alg": "ed25519-nkey" });
    let claims = json!({
        "jti": name, "iat": 1, "iss": issuer.public_key(), "name": name, "sub": subject.public_key(), "nats": rights,
    });
    let encoded = |value: &Value| Base64UrlUnpadded::encode_string(value.to_string().as_bytes());
    let signed = format!("{}.{}", encoded(&header), encoded(&claims));
    let signature = issuer.sign(signed.as_bytes())?;
    Ok(format!("{signed}.{}", Base64UrlUnpadded::encode_string(&signature)))
}

fn write_credentials(path: &Path, jwt: &str, seed: &str) -> Result<()> {
    let text = format!(
        "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    );
    fs::write(path, text)?;
    Ok(fs::set_permissions(path, PermissionsExt::from_mode(0o600))?)
}
