//! Mail through the machine's `sendmail`, which knows the site's mail server.

use super::notice::{Notice, Sender};
use lettre::message::{Mailbox, header};
use lettre::{AsyncSendmailTransport, AsyncTransport as _, Message, Tokio1Executor};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;
use tokio::time::timeout;

/// Paths of `sendmail`, of Postfix, Exim, Sendmail and their stand-ins.
const PLACES: [&str; 3] = ["/usr/sbin/sendmail", "/usr/lib/sendmail", "/usr/bin/sendmail"];
/// Time limit of `sendmail`.
const LIMIT: Duration = Duration::from_secs(60);

/// The address of the user.
#[derive(Clone, Debug, PartialEq)]
pub struct Mail {
    to: Mailbox,
}

/// Error of sending a mail.
#[derive(Debug, thiserror::Error)]
pub enum MailError {
    /// The machine has no `sendmail`.
    #[error("no sendmail on this machine (looked for {})", PLACES.join(", "))]
    NoSendmail,
    /// The message cannot be written.
    #[error("failed to write the message: {0}")]
    Message(String),
    /// `sendmail` refused it.
    #[error("sendmail: {0}")]
    Sendmail(String),
    /// It did not exit in time.
    #[error("sendmail did not exit within {n} s", n = LIMIT.as_secs())]
    TimedOut,
}

impl MailError {
    /// Returns whether another attempt may succeed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Sendmail(_) | Self::TimedOut)
    }
}

impl FromStr for Mail {
    type Err = String;

    fn from_str(raw: &str) -> Result<Self, String> {
        // A login name is an address on this machine.
        let address = if raw.contains('@') { raw.to_owned() } else { format!("{raw}@localhost") };
        let to = address.parse().map_err(|_| format!("{raw:?} is not a valid mail address"))?;
        Ok(Self { to })
    }
}

impl Mail {
    /// The machine's `sendmail`.
    ///
    /// # Errors
    /// [`MailError::NoSendmail`].
    pub fn sendmail() -> Result<&'static Path, MailError> {
        PLACES.iter().map(Path::new).find(|path| path.exists()).ok_or(MailError::NoSendmail)
    }

    /// The address.
    pub fn address(&self) -> String {
        self.to.to_string()
    }

    /// Sends a notice.
    ///
    /// # Errors
    /// [`MailError`].
    pub async fn send(&self, notice: &Notice, sender: &Sender) -> Result<(), MailError> {
        self.send_by(Self::sendmail()?, notice, sender).await
    }

    async fn send_by(&self, program: &Path, notice: &Notice, sender: &Sender) -> Result<(), MailError> {
        let message = self.message(notice, sender)?;
        let transport = AsyncSendmailTransport::<Tokio1Executor>::new_with_command(program);
        match timeout(LIMIT, transport.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(MailError::Sendmail(error.to_string())),
            Err(_) => Err(MailError::TimedOut),
        }
    }

    fn message(&self, notice: &Notice, sender: &Sender) -> Result<Message, MailError> {
        let wrong = |error: &dyn std::fmt::Display| MailError::Message(error.to_string());
        let from = format!("{}@{}", sender.user, sender.host).parse::<Mailbox>();
        // A host name may be no mail domain.
        let from = from.or_else(|_| format!("{}@localhost", sender.user).parse());
        let from = from.map_err(|error| wrong(&error))?;
        let body = notice.details().join("\n");
        Message::builder()
            .from(from)
            .to(self.to.clone())
            .subject(subject(&notice.headline()))
            .header(AutoSubmitted)
            .header(header::ContentType::TEXT_PLAIN)
            .body(format!("{body}\n\n-- \nnodeglass on {}, cluster {}\n", sender.host, sender.cluster))
            .map_err(|error| wrong(&error))
    }
}

/// The subject for a headline. What an encoded word (RFC 2047) begins with would be decoded where a name contains it.
fn subject(headline: &str) -> String {
    format!("[nodeglass] {}", headline.replace("=?", "= ?"))
}

/// `Auto-Submitted: auto-generated` (RFC 3834), which prevents vacation notices.
#[derive(Clone)]
struct AutoSubmitted;

impl header::Header for AutoSubmitted {
    fn name() -> header::HeaderName {
        header::HeaderName::new_from_ascii_str("Auto-Submitted")
    }

    fn parse(_: &str) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Self)
    }

    fn display(&self) -> header::HeaderValue {
        header::HeaderValue::new(Self::name(), "auto-generated".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_api::fixtures::finding;
    use std::os::unix::fs::PermissionsExt as _;

    fn notice() -> Notice {
        Notice::Found(Box::new(finding("a")), Vec::new())
    }

    fn sender() -> Sender {
        Sender { cluster: "juniper".into(), user: "alice".into(), host: "login1.example.org".into() }
    }

    #[tokio::test]
    async fn a_mail_has_the_notice_and_is_marked_as_automatic() {
        let dir = tempfile::tempdir().unwrap();
        let (program, out) = (dir.path().join("sendmail"), dir.path().join("out"));
        std::fs::write(&program, format!("#!/bin/sh\necho \"$@\" > {0}\ncat >> {0}\n", out.display()))
            .unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mail: Mail = "alice@example.org".parse().unwrap();
        mail.send_by(&program, &notice(), &sender()).await.unwrap();
        let sent = std::fs::read_to_string(out).unwrap();
        for part in [
            "To: alice@example.org",
            "From: alice@login1.example.org",
            "Subject: [nodeglass] warning: n1: GPU 3 too hot",
            "Auto-Submitted: auto-generated",
            "Report it to the administrators",
        ] {
            assert!(sent.contains(part), "{part} is not in {sent}");
        }
    }

    #[test]
    fn t14_a_name_in_a_subject_is_no_encoded_word() {
        assert_eq!(
            subject("=?utf-8?q?=0D=0ABcc?= (101) ended"),
            "[nodeglass] = ?utf-8?q?=0D=0ABcc?= (101) ended"
        );
    }

    #[tokio::test]
    async fn a_failing_sendmail_is_tried_again_and_a_missing_one_is_not() {
        let mail: Mail = "alice".parse().unwrap();
        let failed = mail.send_by(Path::new("/bin/false"), &notice(), &sender()).await.unwrap_err();
        assert!(failed.is_transient() && !MailError::NoSendmail.is_transient());
        assert!("not an address".parse::<Mail>().is_err());
    }
}
