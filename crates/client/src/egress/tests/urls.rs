//! Checks of the URL's text, and of the addresses a name leads to.

use super::*;

/// A label for the kind of a refusal, for tables.
fn kind(refused: &EgressRefusal) -> &'static str {
    match refused {
        EgressRefusal::TooLong => "long",
        EgressRefusal::Malformed(_) => "malformed",
        EgressRefusal::Scheme => "scheme",
        EgressRefusal::Credentials => "credentials",
        EgressRefusal::Fragment => "fragment",
        EgressRefusal::OddAddress => "odd address",
        EgressRefusal::Port { .. } => "port",
        EgressRefusal::PlainHttp { .. } => "plain",
        EgressRefusal::LocalName { .. } => "local",
        EgressRefusal::Address { range, .. } => match range {
            AddressRange::Loopback => "loopback",
            AddressRange::Private => "private",
            AddressRange::LinkLocal => "link",
            AddressRange::Shared => "shared",
            AddressRange::Metadata => "metadata",
            AddressRange::Unspecified => "unspecified",
            AddressRange::Multicast => "multicast",
            AddressRange::Documentation => "documentation",
            AddressRange::Reserved => "reserved",
            AddressRange::Disguised => "disguised",
        },
    }
}

const HOSTILE: &[(&str, &str)] = &[
    // Other schemes.
    ("", "scheme"),
    ("hooks.example.org/done", "scheme"),
    ("//hooks.example.org/done", "scheme"),
    ("file:///etc/passwd", "scheme"),
    ("ftp://hooks.example.org/", "scheme"),
    ("gopher://127.0.0.1:6379/_FLUSHALL", "scheme"),
    ("javascript:alert(1)", "scheme"),
    ("data:text/plain,hi", "scheme"),
    ("unix:///run/docker.sock", "scheme"),
    ("ws://hooks.example.org/", "scheme"),
    ("http+unix://%2Frun%2Fdocker.sock/", "scheme"),
    ("https:/hooks.example.org", "scheme"),
    ("https:hooks.example.org", "scheme"),
    ("url:https://hooks.example.org", "scheme"),
    // This machine, in plain form.
    ("https://127.0.0.1/", "loopback"),
    ("https://127.255.255.254:8443/", "loopback"),
    ("https://[::1]/", "loopback"),
    ("https://[0:0:0:0:0:0:0:1]:8443/", "loopback"),
    ("https://0.0.0.0/", "unspecified"),
    ("https://0.1.2.3/", "unspecified"),
    ("https://[::]/", "unspecified"),
    ("https://localhost/", "local"),
    ("https://LOCALHOST:8443/", "local"),
    ("https://foo.localhost/", "local"),
    // This machine, disguised.
    ("https://2130706433/", "odd address"),
    ("https://0x7f000001/", "odd address"),
    ("https://0X7F.0.0.1/", "odd address"),
    ("https://017700000001/", "odd address"),
    ("https://0177.0.0.1/", "odd address"),
    ("https://127.1/", "odd address"),
    ("https://127.0.1/", "odd address"),
    ("https://127.0.0.01/", "odd address"),
    ("https://127.0.0.1./", "odd address"),
    ("https://127.0.0.256/", "odd address"),
    ("https://1.2.3.4.5/", "odd address"),
    ("https://0x/", "odd address"),
    ("https://0/", "odd address"),
    ("https://hooks.example.0x7f/", "odd address"),
    ("https://%31%32%37.0.0.1/", "odd address"),
    ("https://①②⑦.⓪.⓪.①/", "malformed"),
    ("https://127。0。0。1/", "malformed"),
    ("https://ｌocalhost/", "malformed"),
    ("https://loc%61lhost/", "malformed"),
    ("https://localhost%00.example.org/", "malformed"),
    ("https://localhost./", "malformed"),
    ("https://hooks.example.org./", "malformed"),
    ("https://loc\u{ad}alhost/", "malformed"),
    ("https://xn--a/", "malformed"),
    // IPv6 with an embedded IPv4 address.
    ("https://[::ffff:127.0.0.1]/", "disguised"),
    ("https://[::ffff:7f00:1]/", "disguised"),
    ("https://[::ffff:0:127.0.0.1]/", "disguised"),
    ("https://[::127.0.0.1]/", "disguised"),
    ("https://[::ffff:93.184.216.34]/", "disguised"),
    ("https://[64:ff9b::10.0.0.1]/", "disguised"),
    ("https://[64:ff9b::a9fe:a9fe]/", "disguised"),
    ("https://[64:ff9b:1::1]/", "disguised"),
    ("https://[2002:7f00:1::]/", "disguised"),
    ("https://[2001:0:7f00:1::]/", "disguised"),
    ("https://[2a00:1450::5efe:a00:1]/", "disguised"),
    ("https://[fe80::1%25eth0]/", "odd address"),
    ("https://[::1%lo]/", "odd address"),
    ("https://[127.0.0.1]/", "odd address"),
    ("https://[v1.fe80::a]/", "odd address"),
    // Private networks.
    ("https://10.0.0.1/", "private"),
    ("https://172.16.0.1/", "private"),
    ("https://172.31.255.255/", "private"),
    ("https://192.168.1.1/", "private"),
    ("https://[fd12:3456::1]/", "private"),
    ("https://[fec0::1]/", "private"),
    ("https://100.64.0.1/", "shared"),
    ("https://169.254.1.1/", "link"),
    ("https://[fe80::1]/", "link"),
    ("https://169.254.169.254/latest/meta-data/", "metadata"),
    ("https://169.254.170.2/v2/credentials", "metadata"),
    ("https://100.100.100.200/", "metadata"),
    ("https://168.63.129.16/", "metadata"),
    ("https://[fd00:ec2::254]/", "metadata"),
    ("https://metadata.google.internal/computeMetadata/v1/", "local"),
    ("https://printer.local/", "local"),
    ("https://router/", "local"),
    ("https://intranet.corp/", "local"),
    // No machine at all.
    ("https://224.0.0.1/", "multicast"),
    ("https://[ff02::1]/", "multicast"),
    ("https://255.255.255.255/", "reserved"),
    ("https://240.0.0.1/", "reserved"),
    ("https://198.18.0.1/", "reserved"),
    ("https://192.0.0.8/", "reserved"),
    ("https://[100::1]/", "reserved"),
    ("https://[2001:2::1]/", "reserved"),
    ("https://[4000::1]/", "reserved"),
    ("https://192.0.2.1/", "documentation"),
    ("https://[2001:db8::1]/", "documentation"),
    ("https://[3fff::1]/", "documentation"),
    // A trusted-looking name in front.
    ("https://user@hooks.example.org/", "credentials"),
    ("https://user:pass@hooks.example.org/", "credentials"),
    ("https://@hooks.example.org/", "credentials"),
    ("https://hooks.example.org@127.0.0.1/", "credentials"),
    ("https://127.0.0.1:80@hooks.example.org/", "credentials"),
    ("https://hooks.example.org%40127.0.0.1/", "odd address"),
    ("https://hooks.example.org#@127.0.0.1/", "fragment"),
    ("https://hooks.example.org/#/../admin", "fragment"),
    ("https://hooks.example.org/done#", "fragment"),
    ("https://127.0.0.1#.example.org/", "fragment"),
    ("https://127.0.0.1?.example.org/", "loopback"),
    // Forms that parsers disagree on.
    ("https://hooks.example.org\\@127.0.0.1/", "malformed"),
    ("https:\\\\hooks.example.org/", "malformed"),
    ("https:///hooks.example.org/", "malformed"),
    ("https:////127.0.0.1/", "malformed"),
    ("https://", "malformed"),
    ("https://:443/", "malformed"),
    (" https://hooks.example.org/", "malformed"),
    ("https://hooks.example.org/ ", "malformed"),
    ("ht\ttps://hooks.example.org/", "malformed"),
    ("https://hooks.example.org/\r\nHost: localhost", "malformed"),
    ("https://hooks.example.org/\0", "malformed"),
    ("https://hooks example.org/", "malformed"),
    ("https://hooks..example.org/", "malformed"),
    ("https://.example.org/", "malformed"),
    ("https://-hooks.example.org/", "malformed"),
    ("https://hooks,example.org/", "malformed"),
    ("https://*.example.org/", "malformed"),
    ("https://[::1/", "malformed"),
    ("https://[::1]x:80/", "malformed"),
    ("https://::1/", "malformed"),
    // Ports.
    ("https://hooks.example.org:/", "malformed"),
    ("https://hooks.example.org:0/", "malformed"),
    ("https://hooks.example.org:0443/", "malformed"),
    ("https://hooks.example.org:65536/", "malformed"),
    ("https://hooks.example.org:-1/", "malformed"),
    ("https://hooks.example.org:+443/", "malformed"),
    ("https://hooks.example.org:80:80/", "malformed"),
    ("https://hooks.example.org:http/", "malformed"),
    ("https://hooks.example.org:22/", "port"),
    ("https://hooks.example.org:25/", "port"),
    ("http://hooks.example.org:6379/", "port"),
    ("https://93.184.216.34:11211/", "port"),
    // Unencrypted.
    ("http://hooks.example.org/", "plain"),
    ("HTTP://hooks.example.org:8080/", "plain"),
    ("http://93.184.216.34/", "plain"),
];

const HARMLESS: &[&str] = &[
    "https://hooks.example.org",
    "https://hooks.example.org/",
    "HTTPS://Hooks.Example.ORG/Done",
    "https://hooks.example.org:443/done",
    "https://hooks.example.org:8443/done",
    "https://hooks.example.org:80/done",
    "https://hooks.example.org/a/../b?x[]=1&y=a%20b",
    "https://hooks.example.org?run=1",
    "https://hooks.example.org/user@host:80//x",
    "https://xn--bcher-kva.example/haken",
    "https://my_service.example.org/",
    "https://1e100.net/",
    "https://0x7f.example.org/",
    "https://93.184.216.34/",
    "https://172.32.0.1:9443/",
    "https://[2606:4700:4700::1111]/",
    "https://[2606:4700:4700::1111]:8443/done",
    "https://[64:ff9b::93.184.216.34]/",
    "https://localhost.example.org/",
    "https://internal.example.org/",
];

#[test]
fn every_hostile_url_is_refused_for_the_right_reason() {
    let guard = guard(&[]);
    let found: Vec<_> = HOSTILE.iter().map(|(url, _)| (*url, guard.check(url).map_err(|error| kind(&error)))).collect();
    let expected: Vec<_> = HOSTILE.iter().map(|(url, kind)| (*url, Err(*kind))).collect();
    assert_eq!(found, expected);
    assert!(HOSTILE.len() >= 60);
    let long = format!("https://hooks.example.org/{}", "a".repeat(2048));
    assert_eq!(guard.check(&long), Err(EgressRefusal::TooLong));
    let long_label = format!("https://{}.example.org/", "a".repeat(64));
    assert_eq!(guard.check(&long_label).map_err(|error| kind(&error)), Err("malformed"));
}

#[test]
fn every_harmless_url_passes() {
    let guard = guard(&[]);
    let refused: Vec<_> = HARMLESS.iter().filter_map(|url| Some((*url, guard.check(url).err()?))).collect();
    assert_eq!(refused, []);
    assert!(HARMLESS.len() >= 15);
}

#[test]
fn no_refusal_repeats_a_secret() {
    for url in
        ["https://ann:hunter2@hooks.example.org/", "http://hooks.example.org/hunter2", "https://10.0.0.1/hunter2"]
    {
        let refused = guard(&[]).check(url).unwrap_err();
        assert!(!format!("{refused} {refused:?}").contains("hunter2"));
    }
    let checked = guard(&[]).check("https://hooks.example.org/hunter2?key=hunter2").unwrap();
    assert_eq!(format!("{checked:?}"), "Checked(https://hooks.example.org/…)");
    assert_eq!(checked.as_str(), "https://hooks.example.org/hunter2?key=hunter2");
}

#[test]
fn a_url_is_shown_without_the_values_of_its_query() {
    for (url, shown) in [
        ("https://hooks.example.org/done", "https://hooks.example.org/done"),
        ("https://hooks.example.org/done?", "https://hooks.example.org/done?"),
        ("https://hooks.example.org?key=hunter2&x=&y", "https://hooks.example.org?key=***&x=***&***"),
        ("https://hooks.example.org/?a=b=c?d&&e=f", "https://hooks.example.org/?a=***&&e=***"),
    ] {
        assert_eq!(masked(url), shown);
    }
    assert_eq!(origin("https://Hooks.Example.org:443/done?key=hunter2"), "https://hooks.example.org");
    assert_eq!(origin("https://ann:hunter2@hooks.example.org/"), "unreadable");
}

#[test]
fn a_rule_allows_only_what_it_names() {
    let passes = |rules: &[&str], url: &str| guard(rules).check(url).map(|_| ()).map_err(|error| kind(&error));
    for (rule, url) in [
        ("127.0.0.0/8", "http://127.0.0.1:3000/hook"),
        ("10.1.0.0/16", "http://10.1.2.3:22/"),
        ("10.1.2.3", "https://10.1.2.3/"),
        ("fd00::/8", "http://[fd12::1]/"),
        ("[::1]", "http://[::1]:8080/"),
        ("localhost", "http://localhost:3000/"),
        ("Router", "http://router/"),
        ("*.corp.example", "http://a.b.corp.example:81/"),
        ("93.184.216.34", "http://93.184.216.34/"),
        ("169.254.169.254", "http://169.254.169.254/"),
        // The resolved address decides.
        ("10.0.0.0/8", "http://router/"),
        ("10.0.0.0/8", "http://hooks.example.org/"),
    ] {
        assert_eq!(passes(&[rule], url), Ok(()), "{rule} {url}");
    }
    for (rule, url, expected) in [
        ("127.0.0.0/8", "http://10.0.0.1/", "private"),
        ("10.1.0.0/16", "https://10.2.0.1/", "private"),
        ("10.1.2.3", "https://10.1.2.4/", "private"),
        ("0.0.0.0/0", "https://0.0.0.0/", "unspecified"),
        ("0.0.0.0/0", "https://224.0.0.1/", "multicast"),
        ("0.0.0.0/0", "https://[::1]/", "loopback"),
        ("::/0", "https://[::ffff:127.0.0.1]/", "disguised"),
        ("169.254.0.0/16", "http://169.254.169.254/", "metadata"),
        ("localhost", "http://localhost.evil.example/", "plain"),
        ("*.corp.example", "http://corp.example/", "plain"),
        ("*.corp.example", "http://evilcorp.example/", "plain"),
        ("corp.example", "http://a.corp.example/", "plain"),
        ("localhost", "http://user@localhost/", "credentials"),
        ("localhost", "file://localhost/etc/passwd", "scheme"),
    ] {
        assert_eq!(passes(&[rule], url), Err(expected), "{rule} {url}");
    }
}

#[test]
fn an_invalid_rule_includes_the_correct_form() {
    for (rule, shown) in [
        (" 10.0.0.0/8 ", "10.0.0.0/8"),
        ("[fd00::]/8", "fd00::/8"),
        ("::1", "::1"),
        ("*.Corp.example", "*.corp.example"),
    ] {
        assert_eq!(rule.parse::<EgressRule>().unwrap().to_string(), shown);
    }
    for (rule, why) in [
        ("10.1.2.3/8", "the network with that prefix length is 10.0.0.0/8"),
        ("10.0.0.0/33", "the prefix length must be a number up to 32"),
        ("10.0.0.0/+8", "the prefix length must be a number up to 32"),
        ("fd00::/129", "the prefix length must be a number up to 128"),
        ("corp.example/8", "there is no address before the slash"),
        ("10.1", "an address is four decimal numbers or an IPv6 address"),
        ("", "it isn't a host name; leave out port, path and scheme"),
        ("*", "it isn't a host name; leave out port, path and scheme"),
        ("hooks.example.org:80", "it isn't a host name; leave out port, path and scheme"),
    ] {
        assert_eq!(rule.parse::<EgressRule>().unwrap_err().why, why, "{rule}");
    }
}

#[tokio::test]
async fn the_resolved_address_decides() {
    let refused = async |rules: &[&str], url: &str, addresses: &[&str]| {
        let guard = scripted(rules, &ScriptedResolver::new(&[addresses]));
        let checked = guard.check(url).unwrap();
        match guard.resolve(&checked).await {
            Ok(addresses) => addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            Err(EgressFailure::Refused(refused)) => kind(&refused).to_owned(),
            Err(failure) => failure.to_string(),
        }
    };
    let (hook, plain) = ("https://hooks.example.org/", "http://hooks.example.org/");
    assert_eq!(refused(&[], hook, &["93.184.216.34", "2606:4700::1"]).await, "93.184.216.34:443 [2606:4700::1]:443");
    for (address, kind) in [
        ("127.0.0.1", "loopback"),
        ("10.0.0.1", "private"),
        ("169.254.169.254", "metadata"),
        ("100.64.0.1", "shared"),
        ("0.0.0.0", "unspecified"),
        ("::1", "loopback"),
        ("fe80::1", "link"),
        ("::ffff:10.0.0.1", "disguised"),
        ("64:ff9b::a00:1", "disguised"),
    ] {
        assert_eq!(refused(&[], hook, &[address]).await, kind, "{address}");
        assert_eq!(refused(&[], hook, &["93.184.216.34", address]).await, kind, "both at once: {address}");
    }
    assert_eq!(
        refused(&[], hook, &[]).await,
        "`hooks.example.org` has no address: no address was found. Check the name."
    );
    let rule = ["127.0.0.0/8"];
    assert_eq!(refused(&rule, "http://localhost:3000/", &["::1", "127.0.0.1"]).await, "127.0.0.1:3000");
    assert_eq!(refused(&rule, plain, &["93.184.216.34"]).await, "plain");
    assert_eq!(refused(&rule, "https://hooks.example.org:22/", &["93.184.216.34"]).await, "port");
    assert_eq!(refused(&rule, plain, &["127.0.0.1"]).await, "127.0.0.1:80");
    assert_eq!(refused(&["hooks.example.org"], plain, &["10.0.0.1"]).await, "10.0.0.1:80");
    assert_eq!(refused(&["hooks.example.org"], plain, &["169.254.169.254"]).await, "metadata");
    assert_eq!(refused(&["hooks.example.org"], plain, &["::ffff:10.0.0.1"]).await, "disguised");
}
