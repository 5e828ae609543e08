//! What a configuration may say, and what each mistake in one is called.

use super::*;

const GOOD: &str = r#"
version: 1
upstreams:
  - { name: local, provider: ollama, base_url: "http://127.0.0.1:11434" }
listeners:
  - { name: ollama, bind: "127.0.0.1:8790", upstream: local }
"#;

fn problems(yaml: &str) -> Vec<String> {
    match Config::parse_yaml(yaml).and_then(|config| config.check()) {
        Ok(()) => Vec::new(),
        Err(ConfigError::Shape { message }) => vec![message],
        Err(ConfigError::Refused { problems }) => {
            problems.iter().map(ToString::to_string).collect()
        }
    }
}

fn base_url(url: &str) -> Vec<String> {
    problems(&GOOD.replace("http://127.0.0.1:11434", url))
}

fn bind(address: &str) -> Vec<String> {
    problems(&GOOD.replace("127.0.0.1:8790", address))
}

#[test]
fn accepts_a_plain_configuration_and_asks_for_a_bearer_unless_told_otherwise() {
    assert_eq!(problems(GOOD), Vec::<String>::new());
    let plan = Config::parse_yaml(GOOD).unwrap().plan().unwrap();
    let listener = plan.listeners.first().unwrap();
    assert_eq!((listener.auth, listener.passthrough), (Auth::Bearer, false));
    assert_eq!(listener.upstream.authority, "127.0.0.1:11434");
}

#[test]
fn what_it_writes_it_reads_again() {
    let config = Config::parse_yaml(GOOD).unwrap();
    assert_eq!(Config::parse_json(&serde_json::to_vec(&config).unwrap()).unwrap(), config);
}

#[test]
fn says_where_and_why_for_each_mistake() {
    let mistakes = [
        ("an unknown field", GOOD.replace("provider: ollama", "provider: ollama, kee: x")),
        ("an unknown field at the top", format!("{GOOD}policy: {{}}\n")),
        ("a missing field", GOOD.replace("provider: ollama, ", "")),
        ("a wrong word", GOOD.replace("upstream: local", "upstream: local, auth: basic")),
        ("not YAML", GOOD.replace("listeners:", "listeners: [")),
        ("another version", GOOD.replace("version: 1", "version: 2")),
        ("a key", GOOD.replace("provider: ollama", "provider: ollama, key: sk-secret")),
        ("an unknown upstream", GOOD.replace("upstream: local", "upstream: remote")),
        ("a listener beyond loopback", GOOD.replace("127.0.0.1:8790", "0.0.0.0:8790")),
        ("a name with a slash", GOOD.replace("name: ollama", "name: a/b")),
        (
            "two listeners of one name and port",
            format!("{GOOD}  - {{ name: ollama, bind: \"127.0.0.1:8790\", upstream: local }}\n"),
        ),
        ("a listener as its own upstream", GOOD.replace("11434", "8790")),
        ("https", GOOD.replace("http://127.0.0.1:11434", "https://api.example.test")),
        (
            "a credential in the URL",
            GOOD.replace("http://127.0.0.1:11434", "http://user:pw@127.0.0.1:11434"),
        ),
    ];
    let said: Vec<String> = mistakes
        .iter()
        .map(|(what, yaml)| format!("{what}:\n    {}", problems(yaml).join("\n    ")))
        .collect();
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn a_given_key_is_refused_and_never_repeated() {
    for key in ["sk-secret", "[sk-secret]", "{ env: sk-secret }"] {
        let yaml = GOOD.replace("provider: ollama", &format!("provider: ollama, key: {key}"));
        let said = problems(&yaml).join("");
        assert!(said.contains("upstreams[0].key"), "{said}");
        assert!(
            said.contains("needs Muzzle's inspection, which this build does not have"),
            "{said}"
        );
        assert!(!said.contains("sk-secret"), "{said}");
    }
    assert_eq!(
        problems(&GOOD.replace("provider: ollama", "provider: ollama, key: null")),
        Vec::<String>::new()
    );
}

#[test]
fn reads_base_urls() {
    for (url, host, port, prefix) in [
        ("http://localhost", "localhost", 80, ""),
        ("http://[::1]:11434/", "::1", 11434, ""),
        ("http://models.example.test:8000/v1/", "models.example.test", 8000, "/v1"),
        ("http://h:1/a/b", "h", 1, "/a/b"),
    ] {
        let read = parse_base_url(url).unwrap();
        assert_eq!(
            (read.host.as_str(), read.port, read.prefix.as_str()),
            (host, port, prefix),
            "{url}"
        );
    }
}

#[test]
fn refuses_base_urls_that_lead_astray() {
    for url in [
        "",
        "127.0.0.1:11434",
        "ftp://h",
        "https://h",
        "http://",
        "http://h:0",
        "http://h:99999",
        "http://u@h",
        "http://h/?k=v",
        "http://h/#f",
        "http://h/a/../b",
        "http://h/%2E%2e/b",
    ] {
        assert_ne!(base_url(url), Vec::<String>::new(), "{url}");
    }
}

#[test]
fn binds_only_the_two_loopback_addresses() {
    for address in ["127.0.0.1:0", "[::1]:8790"] {
        assert_eq!(bind(address), Vec::<String>::new(), "{address}");
    }
    for address in [
        "0.0.0.0:1",
        "127.0.0.2:1",
        "[::]:1",
        "192.0.2.1:1",
        "localhost:1",
        "127.0.0.1",
        "8790",
        "",
    ] {
        assert_ne!(bind(address), Vec::<String>::new(), "{address}");
    }
}

#[test]
fn has_a_ceiling_for_listeners_and_upstreams() {
    let mut config = Config::parse_yaml(GOOD).unwrap();
    config.listeners = (0..=limits::LISTENERS)
        .map(|number| Listener {
            name: format!("l{number}"),
            bind: "127.0.0.1:0".to_owned(),
            upstream: "local".to_owned(),
            auth: Auth::Bearer,
            passthrough: false,
        })
        .collect();
    assert!(config.check().is_err());
    config.listeners.pop();
    config.check().unwrap();
}
