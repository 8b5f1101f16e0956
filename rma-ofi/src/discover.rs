//! Asking libfabric what there is, and choosing.

use core::ffi::{c_char, CStr};
use core::{fmt, ptr};
use std::ffi::CString;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use ofi_sys as fi;
use ofi_sys::Library;
use rma_core::provider::ProviderError;

use crate::error::fabric_code;
use crate::handles::Info;
use crate::interface::{self, text_of_address};
use crate::nic::{self, Nic};
use crate::nonce::Nonce;
use crate::profile::Profile;
use crate::Options;

/// Entry point: what libfabric offers on this host.
#[derive(Debug)]
pub struct Ofi;

/// What became of a candidate, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This one is used.
    Chosen(String),
    /// It would work, but another one is preferred.
    Usable(String),
    /// It cannot be used, or only when named.
    Rejected(String),
}

/// One thing that libfabric offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// `fabric_attr.prov_name`
    pub provider: String,
    /// `fabric_attr.name`
    pub fabric: String,
    /// `domain_attr.name`
    pub domain: String,
    /// The address it would bind to, readable.
    pub address: String,
    /// What became of it.
    pub verdict: Verdict,
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, reason) = match &self.verdict {
            Verdict::Chosen(reason) => ("chosen", reason),
            Verdict::Usable(reason) => ("usable", reason),
            Verdict::Rejected(reason) => ("not used", reason),
        };
        write!(f, "{} on {} ({}): {word}: {reason}", self.provider, self.domain, self.address)
    }
}

/// Everything that libfabric offers, and what was chosen.
#[derive(Debug)]
pub struct Choice {
    /// In libfabric's order.
    pub candidates: Vec<Candidate>,
    /// Index of the chosen one.
    pub chosen: usize,
    /// The NIC that the chosen one drives, and why this one of several; `None` where libfabric and the kernel
    /// know of no RDMA device.
    pub nic: Option<String>,
    /// Where the chosen provider is one in software over IP: the addresses of this host that it could bind to, the
    /// best first, without those that lead nowhere else. `None`: which one it binds to is its own affair.
    pub addresses: Option<Vec<IpAddr>>,
    pub(crate) info: Info,
    pub(crate) library: Arc<Library>,
    pub(crate) profile: &'static Profile,
}

impl Choice {
    /// The chosen candidate.
    pub fn candidate(&self) -> &Candidate {
        &self.candidates[self.chosen]
    }

    /// What is known about the chosen provider.
    pub fn profile(&self) -> &'static Profile {
        self.profile
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for candidate in &self.candidates {
            writeln!(f, "{candidate}")?;
        }
        Ok(())
    }
}

impl Ofi {
    /// Loads libfabric, asks it what there is, and chooses. Nothing is opened yet.
    ///
    /// # Errors
    /// When there is no libfabric, nothing usable, or nothing that matches the options; the message
    /// lists what there is.
    pub fn discover(options: &Options) -> Result<Choice, ProviderError> {
        options.check()?;
        let library = Library::open(options.library.as_deref())
            .map_err(|error| ProviderError { message: error.message })?;
        let library = Arc::new(library);
        let offers = list(&library, options)?;
        let mut candidates: Vec<Candidate> = offers.iter().map(|offer| offer.candidate(options)).collect();
        let best = (0..offers.len())
            .filter(|&index| matches!(candidates[index].verdict, Verdict::Usable(_)))
            .max_by_key(|&index| (offers[index].rank(options), core::cmp::Reverse(index)));
        let Some(best) = best else { return Err(nothing_usable(&library, options, &offers, &candidates)) };
        let (chosen, nic) = with_nic(&offers, &candidates, best, options);
        let profile = offers[chosen].profile();
        candidates[chosen].verdict = Verdict::Chosen(offers[chosen].reason_chosen(options));
        // The offers are parts of lists, so the chosen one is copied out.
        // SAFETY: `raw` belongs to a list that `offers` keeps alive.
        let info = unsafe { Info::copy_of(&library, offers[chosen].raw) }
            .ok_or_else(|| ProviderError { message: "fi_dupinfo failed: out of memory".to_owned() })?;
        let addresses = addresses(&offers, &candidates, chosen, options);
        Ok(Choice { candidates, chosen, nic, addresses, info, library, profile })
    }
}

/// Among the usable offers that are as good as `best` and on the same fabric, the one of the NIC that this rank
/// uses, and why. Where `best` drives no NIC that is known, it stays.
fn with_nic(
    offers: &[Offer],
    candidates: &[Candidate],
    best: usize,
    options: &Options,
) -> (usize, Option<String>) {
    if offers[best].nic.is_none() {
        return (best, None);
    }
    let is_rival = |index: &usize| {
        matches!(candidates[*index].verdict, Verdict::Usable(_))
            && candidates[*index].fabric == candidates[best].fabric
            && offers[*index].rank(options) == offers[best].rank(options)
    };
    // One offer for each NIC: libfabric's first.
    let mut rivals: Vec<(usize, Nic)> = Vec::new();
    for index in (0..offers.len()).filter(is_rival) {
        let Some(nic) = &offers[index].nic else { continue };
        if rivals.iter().all(|(_, other)| other.name != nic.name) {
            rivals.push((index, nic.clone()));
        }
    }
    let nics: Vec<Nic> = rivals.iter().map(|(_, nic)| nic.clone()).collect();
    let wanted = options.nic.as_deref().map(nic::words).unwrap_or_default();
    let place = nic::Place::of_this_thread(options.local_rank);
    match nic::choose(&nics, &wanted, &place) {
        Some(pick) => {
            (rivals[pick.index].0, Some(format!("{}: {}", nics[pick.index].describe(), pick.reason)))
        }
        None => (best, None),
    }
}

/// The addresses that the chosen provider could bind to, if that is a question of whom they reach.
fn addresses(
    offers: &[Offer],
    candidates: &[Candidate],
    chosen: usize,
    options: &Options,
) -> Option<Vec<IpAddr>> {
    let provider = &offers[chosen].provider;
    let is_software = ["net", "tcp", "sockets", "udp"].iter().any(|name| names(name, provider));
    let is_one = |(offer, candidate): &(&Offer, &Candidate)| {
        offer.provider == *provider && !matches!(candidate.verdict, Verdict::Rejected(_))
    };
    let ones = offers.iter().zip(candidates).filter(is_one);
    let described = ones.map(|(offer, _)| (offer.info(), offer.domain()));
    (is_software && offers[chosen].uses_ip()).then(|| interface::addresses(described, options))
}

/// One entry of libfabric's answer.
struct Offer {
    raw: *const fi::fi_info,
    provider: String,
    /// The RDMA device that it drives, if libfabric or the kernel knows one.
    nic: Option<Nic>,
    _list: Arc<Info>,
}

impl Offer {
    fn info(&self) -> &fi::fi_info {
        // SAFETY: the entry lives in the list that the offer keeps.
        unsafe { &*self.raw }
    }

    fn profile(&self) -> &'static Profile {
        Profile::of(&self.provider)
    }

    fn fabric(&self) -> String {
        // SAFETY: an info that fi_getinfo returned has its fabric_attr.
        text(unsafe { (*self.info().fabric_attr).name })
    }

    fn domain(&self) -> String {
        // SAFETY: an info that fi_getinfo returned has its domain_attr.
        text(unsafe { (*self.info().domain_attr).name })
    }

    fn uses_ip(&self) -> bool {
        matches!(self.info().addr_format, fi::FI_SOCKADDR | fi::FI_SOCKADDR_IN | fi::FI_SOCKADDR_IN6)
    }

    fn registration_modes(&self) -> u64 {
        // SAFETY: an info that fi_getinfo returned has its domain_attr.
        unsafe { (*self.info().domain_attr).mr_mode as u64 }
    }

    /// The same way to the same device.
    fn is_like(&self, other: &Self) -> bool {
        (&self.provider, self.fabric(), self.domain()) == (&other.provider, other.fabric(), other.domain())
    }

    fn prefers_offsets(&self) -> bool {
        self.profile().quirks.prefers_offsets
    }

    fn candidate(&self, options: &Options) -> Candidate {
        Candidate {
            provider: self.provider.clone(),
            fabric: self.fabric(),
            domain: self.domain(),
            address: text_of_address(self.info()),
            verdict: match self.objection(options) {
                Some(reason) => Verdict::Rejected(reason),
                None => Verdict::Usable(self.profile().reason.to_owned()),
            },
        }
    }

    /// Why this one cannot be used with these options.
    fn objection(&self, options: &Options) -> Option<String> {
        match &options.provider {
            Some(wanted) if !names(wanted, &self.provider) => return Some(format!("{wanted} was asked for")),
            None if self.profile().preference == 0 => return Some(self.profile().reason.to_owned()),
            _ => {}
        }
        if let Some(domain) = &options.domain {
            if *domain != self.domain() {
                return Some(format!("RMA_DOMAIN={domain} was asked for"));
            }
        }
        if let Some(wanted) = &options.nic {
            let is_wanted = |nic: &Nic| nic::words(wanted).iter().any(|word| nic.is_called(word));
            if !self.nic.as_ref().is_some_and(is_wanted) {
                return Some(format!("RMA_NIC={wanted} was asked for"));
            }
        }
        if let Some(reason) = interface::objection(self.info(), options) {
            return Some(reason);
        }
        // Both endpoints of a rank may use a buffer.
        let (modes, registers) = (self.registration_modes(), options.register_buffers);
        if modes & fi::FI_MR_ENDPOINT != 0 && (registers || modes & fi::FI_MR_LOCAL != 0) {
            return Some(
                "binds what is registered to one endpoint (FI_MR_ENDPOINT), and buffers are for two".into(),
            );
        }
        // SAFETY: an info that fi_getinfo returned has its tx_attr.
        let order = unsafe { (*self.info().tx_attr).msg_order };
        if order & fi::FI_ORDER_SAS == 0 {
            return Some("does not promise the order of messages (FI_ORDER_SAS)".to_owned());
        }
        // SAFETY: an info that fi_getinfo returned has its ep_attr.
        let longest = unsafe { (*self.info().ep_attr).max_msg_size };
        let packet_bytes = options.packet_bytes;
        (longest < packet_bytes + Nonce::BYTES).then(|| {
            format!("messages of {longest} bytes at most, packets are {packet_bytes} bytes (RMA_EAGER_BYTES)")
        })
    }

    /// Orders usable offers: the larger the better.
    fn rank(&self, options: &Options) -> (bool, u8, u8) {
        let exact = options.provider.as_deref() == Some(self.provider.as_str());
        (exact, self.profile().preference, interface::reach(self.info(), &self.domain(), options))
    }

    fn reason_chosen(&self, options: &Options) -> String {
        let who = if options.provider.is_some() { "asked for; " } else { "preferred here; " };
        format!("{who}{}", self.profile().reason)
    }
}

/// Whether what the user wrote means this provider: its full name, or the part before the layer.
fn names(wanted: &str, provider: &str) -> bool {
    wanted == provider || provider.split(';').next() == Some(wanted)
}

/// Asks libfabric. Whether the program can register its buffers is said only where it is told to, or where
/// nothing can be used otherwise: layers that could do it themselves leave it to who can.
fn list(library: &Arc<Library>, options: &Options) -> Result<Vec<Offer>, ProviderError> {
    if options.register_buffers {
        return list_with(library, options, MR_MODES | fi::FI_MR_LOCAL);
    }
    let mut offers = list_with(library, options, MR_MODES)?;
    if offers.iter().all(|offer| offer.objection(options).is_some()) {
        let mut others = list_with(library, options, MR_MODES | fi::FI_MR_LOCAL)?;
        others.retain(|other| offers.iter().all(|offer| !offer.is_like(other)));
        offers.extend(others);
    }
    Ok(offers)
}

/// Asks libfabric for who can live with these ways of registering memory. Providers that use IP addresses are
/// asked a second time for the address that the options want, because for others that address means nothing;
/// those that had better not be offered virtual addresses are asked a second time without.
fn list_with(library: &Arc<Library>, options: &Options, modes: u64) -> Result<Vec<Offer>, ProviderError> {
    let mut offers = query(library, options, None, modes)?;
    if let Some(address) = interface::wanted_address(options)? {
        offers.retain(|offer| !offer.uses_ip());
        offers.extend(query(library, options, Some(&address), modes)?.into_iter().filter(Offer::uses_ip));
    }
    if offers.iter().any(Offer::prefers_offsets) {
        offers.retain(|offer| !offer.prefers_offsets());
        let modes = modes & !fi::FI_MR_VIRT_ADDR;
        offers.extend(query(library, options, None, modes)?.into_iter().filter(Offer::prefers_offsets));
    }
    Ok(offers)
}

fn query(
    library: &Arc<Library>,
    options: &Options,
    source: Option<&CStr>,
    mr_modes: u64,
) -> Result<Vec<Offer>, ProviderError> {
    let hints = hints(library, options, mr_modes)?;
    let (node, flags) = source.map_or((ptr::null(), 0), |source| (source.as_ptr(), fi::FI_SOURCE));
    let mut head = ptr::null_mut();
    // SAFETY: strings are terminated or null, the hints are valid, and `head` receives a list.
    let result =
        unsafe { (library.getinfo)(fi::API_VERSION, node, ptr::null(), flags, hints.as_ptr(), &mut head) };
    match result {
        0 => {}
        code if code == -fi::FI_ENODATA => return Ok(Vec::new()),
        code => {
            let code = fabric_code(-code);
            return Err(ProviderError {
                message: format!("fi_getinfo failed: {code}; FI_LOG_LEVEL=warn says more"),
            });
        }
    }
    // SAFETY: fi_getinfo succeeded and hands the list over.
    let Some(list) = (unsafe { Info::from_raw(library, head) }) else { return Ok(Vec::new()) };
    let list = Arc::new(list);
    let mut offers = Vec::new();
    let mut next: *const fi::fi_info = list.as_ptr();
    while !next.is_null() {
        // SAFETY: an entry of the list, which has its fabric_attr.
        let attr = unsafe { (*next).fabric_attr };
        // SAFETY: as above.
        let provider = text(unsafe { (*attr).prov_name });
        // SAFETY: an entry of the list, which `list` keeps.
        let nic = nic_of(unsafe { &*next });
        offers.push(Offer { raw: next, provider, nic, _list: Arc::clone(&list) });
        // SAFETY: an entry of the list.
        next = unsafe { (*next).next };
    }
    Ok(offers)
}

/// The RDMA device of an entry. Interfaces of software providers are none: which of them to use is a question of
/// whom they reach.
fn nic_of(info: &fi::fi_info) -> Option<Nic> {
    // SAFETY: an info that fi_getinfo returned has its domain_attr.
    let domain = text(unsafe { (*info.domain_attr).name });
    // SAFETY: null, or the description of a NIC that belongs to the info.
    let described = unsafe { info.nic.as_ref() };
    // SAFETY: each part of the description is null or there; so below.
    let device =
        described.and_then(|nic| unsafe { nic.device_attr.as_ref() }).map(|device| text(device.name));
    let name = device.filter(|name| !name.is_empty()).unwrap_or(domain);
    // SAFETY: as above.
    let bus = described.and_then(|nic| unsafe { nic.bus_attr.as_ref() });
    let pci = bus.filter(|bus| bus.bus_type == fi::FI_BUS_PCI).map(|bus| {
        // SAFETY: the type says that this member was written.
        let pci = unsafe { bus.attr.pci };
        format!("{:04x}:{:02x}:{:02x}.{:x}", pci.domain_id, pci.bus_id, pci.device_id, pci.function_id)
    });
    // SAFETY: as above.
    let link = described.and_then(|nic| unsafe { nic.link_attr.as_ref() });
    let (pci, node) = nic::located(Path::new("/sys"), &name, pci)?;
    Some(Nic {
        name,
        pci: Some(pci),
        node,
        is_down: link.is_some_and(|link| link.state == fi::FI_LINK_DOWN),
        speed: link.map_or(0, |link| link.speed as u64),
    })
}

/// What this program needs, and what it can live with.
fn hints(library: &Library, options: &Options, mr_modes: u64) -> Result<Info, ProviderError> {
    let hints = Info::empty(library)
        .ok_or_else(|| ProviderError { message: "fi_allocinfo failed: out of memory".to_owned() })?;
    // SAFETY: just allocated with all its parts, and not shared.
    let info = unsafe { &mut *hints.as_ptr() };
    info.caps = fi::FI_MSG | fi::FI_RMA;
    if options.native_atomics {
        // Only then: asking for it makes libfabric choose other providers and give up orders.
        info.caps |= fi::FI_ATOMIC;
    }
    info.mode = fi::FI_CONTEXT | fi::FI_CONTEXT2;
    // SAFETY: allocated above.
    unsafe { (*info.ep_attr).type_ = fi::FI_EP_RDM };
    // SAFETY: allocated above.
    let domain = unsafe { &mut *info.domain_attr };
    domain.mr_mode = mr_modes as i32;
    // Endpoints are used by one thread at a time, but a region may be dropped by any. The model made
    // for that, FI_THREAD_COMPLETION, crashes tcp of libfabric 2.5 in fi_cq_open (FI_WAIT_FD).
    domain.threading = fi::FI_THREAD_SAFE;
    domain.data_progress = fi::FI_PROGRESS_MANUAL;
    domain.resource_mgmt = fi::FI_RM_ENABLED;
    domain.av_type = fi::FI_AV_TABLE;
    Ok(hints)
}

/// Ways of registering memory that the endpoint can live with. `FI_MR_LOCAL` is another one, see [`list`].
pub(crate) const MR_MODES: u64 =
    fi::FI_MR_VIRT_ADDR | fi::FI_MR_ALLOCATED | fi::FI_MR_PROV_KEY | fi::FI_MR_ENDPOINT;

/// A string of libfabric's; empty for null.
pub(crate) fn text(raw: *const c_char) -> String {
    if raw.is_null() {
        return String::new();
    }
    // SAFETY: strings in an fi_info are terminated.
    unsafe { CStr::from_ptr(raw) }.to_string_lossy().into_owned()
}

#[cold]
fn nothing_usable(
    library: &Arc<Library>,
    options: &Options,
    offers: &[Offer],
    candidates: &[Candidate],
) -> ProviderError {
    let mut message = match &options.provider {
        Some(wanted) => format!("no provider {wanted} that can be used"),
        None => "no usable provider".to_owned(),
    };
    let (major, minor) = library.version();
    message += &format!(" in libfabric {major}.{minor} ({})", library.path().display());
    if let Ok(filter) = std::env::var("FI_PROVIDER") {
        message += &format!("; FI_PROVIDER={filter} hides the others");
    }
    let mut names: Vec<&str> = candidates.iter().map(|candidate| candidate.provider.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        message += "; it offers no provider with reliable datagrams and remote memory access here";
    } else {
        message += &format!("; it offers {}", names.join(", "));
    }
    for candidate in candidates.iter().filter(|candidate| {
        options.provider.as_deref().is_some_and(|wanted| names_candidate(wanted, candidate))
    }) {
        message += &format!("\n  {candidate}");
    }
    message += &filters(options, offers);
    message += "\nChoose one with RMA_PROVIDER or --provider; `rma-bench info` shows all with reasons";
    ProviderError { message }
}

/// A line for each setting but the provider that narrows the choice: what it asks for, and what there is.
fn filters(options: &Options, offers: &[Offer]) -> String {
    let is_asked_for =
        |offer: &&Offer| options.provider.as_deref().is_none_or(|wanted| names(wanted, &offer.provider));
    let asked_for = || offers.iter().filter(is_asked_for);
    let address = |offer: &Offer| offer.uses_ip().then(|| text_of_address(offer.info()));
    let domains = asked_for().map(Offer::domain).collect();
    let nics = offers.iter().filter_map(|offer| offer.nic.as_ref()).map(Nic::describe).collect();
    let addresses = asked_for().filter_map(address).collect();
    let mut text = String::new();
    for (name, wanted, there, nothing) in [
        ("RMA_DOMAIN", &options.domain, domains, "no device"),
        ("RMA_NIC", &options.nic, nics, "no RDMA device"),
        ("RMA_INTERFACE", &options.interface, addresses, "no such address that a provider can use"),
    ] {
        let mut there: Vec<String> = there;
        there.sort_unstable();
        there.dedup();
        let there = if there.is_empty() { nothing.to_owned() } else { there.join(", ") };
        if let Some(wanted) = wanted {
            text += &format!("\n{name}={wanted} was asked for, and there is {there}");
        }
    }
    text
}

fn names_candidate(wanted: &str, candidate: &Candidate) -> bool {
    names(wanted, &candidate.provider)
}

/// Whether the options name an address, for messages.
pub(crate) fn c_string(value: &str) -> Result<CString, ProviderError> {
    CString::new(value)
        .map_err(|_| ProviderError { message: format!("{value:?} has a zero byte inside and names nothing") })
}
