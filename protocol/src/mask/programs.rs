//! Programs that take a secret by a letter, which for other programs means something else.

/// The last program of a command line that is known here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Program {
    /// None of them.
    #[default]
    Other,
    /// `-pSECRET`, never apart.
    Mysql,
    /// `-p SECRET` or `-pSECRET`.
    Sshpass,
    /// `-p SECRET` once it is told to log in.
    Registry,
    /// Such a one that is told to log in.
    Login,
    /// `-a SECRET`.
    Redis,
    /// `-w SECRET`.
    Ldap,
    /// `-p SECRET`.
    Mongo,
    /// `-P SECRET`.
    Zip,
    /// `-uUSER:SECRET`.
    Curl,
    /// `-U USER%SECRET`.
    Samba,
    /// `-k SECRET`, `-K SECRET`.
    Openssl,
    /// What is told after `login` is the key itself.
    Wandb,
    /// Such a one that was told to log in.
    WandbLogin,
}

/// Names of programs.
const PROGRAMS: [(Program, &[&str]); 12] = [
    (Program::Other, &["ssh", "scp", "sftp", "rsync", "psql", "python", "python3"]),
    (
        Program::Mysql,
        &[
            "mysql",
            "mysqldump",
            "mysqladmin",
            "mysqlimport",
            "mysqlshow",
            "mariadb",
            "mariadb-dump",
            "mycli",
            "7z",
            "7za",
        ],
    ),
    (Program::Sshpass, &["sshpass"]),
    (
        Program::Registry,
        &[
            "docker",
            "podman",
            "nerdctl",
            "buildah",
            "skopeo",
            "helm",
            "az",
            "oc",
            "apptainer",
            "singularity",
            "crane",
        ],
    ),
    (Program::Redis, &["redis-cli"]),
    (
        Program::Ldap,
        &["ldapsearch", "ldapadd", "ldapmodify", "ldapdelete", "ldapwhoami", "ldappasswd", "ldapcompare"],
    ),
    (
        Program::Mongo,
        &[
            "mongo",
            "mongosh",
            "mongodump",
            "mongorestore",
            "mongoexport",
            "mongoimport",
            "cqlsh",
            "clickhouse",
        ],
    ),
    (Program::Zip, &["zip", "unzip", "pdftk"]),
    (Program::Curl, &["curl"]),
    (Program::Samba, &["smbclient", "rpcclient"]),
    (Program::Openssl, &["openssl"]),
    (Program::Wandb, &["wandb"]),
];

impl Program {
    /// Looks at a word that may be a program, or what the last one is told to do.
    pub fn meet(&mut self, word: &str) {
        let name = word.trim_matches(['"', '\'', '(', '`']).rsplit('/').next().unwrap_or_default();
        let known = PROGRAMS.iter().find(|(_, names)| names.contains(&name));
        *self = match (known, *self) {
            (Some((program, _)), _) => *program,
            (None, Self::Registry) if word == "login" => Self::Login,
            (None, Self::Wandb) if word == "login" => Self::WandbLogin,
            (None, _) if matches!(word, ";" | "|" | "||" | "&&" | "&") => Self::Other,
            (None, program) => program,
        };
    }

    /// The option in a word that is an option and a secret in one.
    pub fn joined<'a>(&self, word: &'a str) -> Option<&'a str> {
        let letter = match self {
            Self::Mysql | Self::Sshpass => "-p",
            Self::Curl => "-u",
            _ => return None,
        };
        let secret = word.strip_prefix(letter)?;
        let is_secret = !secret.is_empty() && (letter == "-p" || secret.contains(':'));
        is_secret.then(|| &word[..letter.len()])
    }

    /// Whether the word after this one is a secret.
    pub fn next_is_secret(&self, word: &str) -> bool {
        match self {
            Self::Sshpass | Self::Login | Self::Mongo => word == "-p",
            Self::Redis => word == "-a",
            Self::Ldap => word == "-w",
            Self::Zip => word == "-P",
            Self::Openssl => matches!(word, "-k" | "-K"),
            Self::WandbLogin => matches!(word, "login" | "--relogin" | "--cloud"),
            _ => false,
        }
    }

    /// Whether the word after this one is a user and a secret with `%` between them.
    pub fn next_is_login(&self, word: &str) -> bool {
        *self == Self::Samba && word == "-U"
    }
}

/// Whether the argument after this one is a text of many commands.
pub fn takes_script(argument: &str) -> bool {
    let letters = argument.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
    let shell = letters.is_some_and(|letters| {
        letters.ends_with('c') && letters.len() <= 4 && letters.bytes().all(|byte| byte.is_ascii_lowercase())
    });
    shell || matches!(argument, "--wrap" | "eval" | "--command")
}
