//! Variables and limits, as tables.

use super::*;

fn env(text: &[&str]) -> Vec<EnvironmentVariable> {
    let pair = |it: &&str| {
        let (name, value) = it.split_once('=').unwrap();
        variable(name, value)
    };
    text.iter().map(pair).collect()
}

fn check(facts: &ContainerFacts<'_>, expected: &[&str]) {
    assert_eq!(container_environment(facts), env(expected), "{facts:?}");
}

#[test]
fn a_containers_variables_stand_in_diegos_order() {
    let guid = InstanceGuid::new("i-1").unwrap();
    let own = env(&["A=1", "INSTANCE_INDEX=mine", "CF_INSTANCE_CERT=mine"]);
    let task = ContainerFacts { env: &own, ..ContainerFacts::default() };
    check(&ContainerFacts::default(), &[]);
    check(&task, &["A=1", "INSTANCE_INDEX=mine", "CF_INSTANCE_CERT=mine"]);
    let lrp = ContainerFacts {
        instance: Some((&guid, 3)),
        env: &own,
        system_certificates_path: "/certs",
        identity: Identity::Mounted,
    };
    check(
        &lrp,
        &[
            "INSTANCE_GUID=i-1",
            "INSTANCE_INDEX=3",
            "CF_INSTANCE_GUID=i-1",
            "CF_INSTANCE_INDEX=3",
            "A=1",
            "INSTANCE_INDEX=mine",
            "CF_INSTANCE_CERT=mine",
            "CF_SYSTEM_CERT_PATH=/certs",
            "CF_INSTANCE_CERT=/etc/cf-instance-credentials/instance.crt",
            "CF_INSTANCE_KEY=/etc/cf-instance-credentials/instance.key",
        ],
    );
}

#[test]
fn the_last_of_a_name_wins_and_stays_where_it_is() {
    let container = env(&["A=container", "B=container", "C=container", "A=again"]);
    let action = env(&["B=action", "D=action", "CF_INSTANCE_IP=forged"]);
    let network = env(&["CF_INSTANCE_IP=10.0.0.1", "CF_INSTANCE_PORTS=[]"]);
    assert_eq!(
        process_environment(&container, &action, &network),
        env(&[
            "C=container",
            "A=again",
            "B=action",
            "D=action",
            "CF_INSTANCE_IP=10.0.0.1",
            "CF_INSTANCE_PORTS=[]",
        ])
    );
    assert_eq!(process_environment(&[], &[], &[]), []);
}

fn port(host_port: u32, container_port: u32) -> PortMapping {
    PortMapping { host_port, container_port, ..PortMapping::default() }
}

#[test]
fn the_network_is_told_as_far_as_it_is_there() {
    let proxied = PortMapping {
        host_tls_proxy_port: 61_000,
        container_tls_proxy_port: 61_001,
        ..port(0, 8080)
    };
    for (ports, expected) in [
        (vec![], vec!["CF_INSTANCE_PORT=", "CF_INSTANCE_ADDR=", "CF_INSTANCE_PORTS=[]"]),
        (
            vec![port(60_001, 8080), port(60_002, 22)],
            vec![
                "CF_INSTANCE_PORT=60001",
                "CF_INSTANCE_ADDR=192.0.2.7:60001",
                r#"CF_INSTANCE_PORTS=[{"external":60001,"internal":8080},{"external":60002,"internal":22}]"#,
            ],
        ),
        (
            vec![proxied, port(60_002, 22)],
            vec![
                r#"CF_INSTANCE_PORTS=[{"internal":8080,"external_tls_proxy":61000,"internal_tls_proxy":61001},{"external":60002,"internal":22}]"#,
            ],
        ),
    ] {
        let network = ContainerNetwork {
            external_address: "192.0.2.7".parse().unwrap(),
            internal_address: "10.255.0.9".parse().unwrap(),
            internal_ipv6: None,
            ports,
        };
        let mut all = vec!["CF_INSTANCE_IP=192.0.2.7", "CF_INSTANCE_INTERNAL_IP=10.255.0.9"];
        all.extend(&expected);
        assert_eq!(network_environment(&network), env(&all));
        let six = ContainerNetwork { internal_ipv6: Some("fd00::9".parse().unwrap()), ..network };
        all.insert(2, "CF_INSTANCE_INTERNAL_IPV6=fd00::9");
        assert_eq!(network_environment(&six), env(&all));
    }
}

#[test]
fn an_ipv6_cell_has_brackets_around_its_address() {
    let network = ContainerNetwork {
        external_address: "2001:db8::1".parse().unwrap(),
        internal_address: "10.255.0.9".parse().unwrap(),
        internal_ipv6: None,
        ports: vec![port(60_001, 8080)],
    };
    let told = network_environment(&network);
    assert!(told.contains(&variable("CF_INSTANCE_ADDR", "[2001:db8::1]:60001")), "{told:?}");
}

#[test]
fn limits_follow_the_definition_and_zero_is_none() {
    let lrp = LimitFacts {
        owner: Owner::Lrp,
        memory_mb: 256,
        disk_mb: 1_024,
        max_pids: 50,
        cpu_weight: 50,
    };
    let nothing = LimitFacts { memory_mb: 0, disk_mb: 0, max_pids: 0, cpu_weight: 0, ..lrp };
    let plain = LimitSettings::default();
    let proxied = LimitSettings { proxy_memory_mb: 32, ..plain };
    let expect = |memory_bytes, disk_bytes, pids, cpu_shares| Limits {
        memory_bytes,
        cpu_shares,
        pids,
        disk_bytes,
        inodes: 200_000,
    };
    let disk = (1_024 << 20) + 7;
    let task = Owner::Task;
    let huge = LimitFacts { memory_mb: u32::MAX, cpu_weight: u32::MAX, ..lrp };
    let most = 1_024 * u64::from(u32::MAX) / 100;
    for (facts, settings, expected) in [
        (lrp, plain, expect(256 << 20, disk, 50, 512)),
        (lrp, proxied, expect(288 << 20, disk, 50, 512)),
        (LimitFacts { owner: task, ..lrp }, proxied, expect(256 << 20, disk, 50, 512)),
        (nothing, proxied, expect(0, 0, 0, 10)),
        (LimitFacts { owner: task, ..nothing }, plain, expect(0, 0, 0, 0)),
        (LimitFacts { cpu_weight: 200, ..lrp }, plain, expect(256 << 20, disk, 50, 2_048)),
        (huge, plain, expect(u64::from(u32::MAX) << 20, disk, 50, most)),
    ] {
        assert_eq!(limits(facts, settings, 7), expected, "{facts:?} {settings:?}");
    }
    let full = limits(lrp, plain, u64::MAX);
    assert_eq!(full.disk_bytes, u64::MAX, "a root that large is an error elsewhere");
}
