// The benchmark's networks in ns-3: reads one from standard input, runs it, prints what it moved as one line of JSON.
//
// SPDX-License-Identifier: Apache-2.0
//
// Input, one item a line, nodes by number, hosts first:
//   network HOSTS SWITCHES MTU_BYTES SEGMENT_BYTES BUFFER_BYTES QUEUE_PACKETS MARK_PACKETS
//   link A B RATE_BPS DELAY_NS
//   route NODE FROM HOST TO        at NODE, what comes from its neighbour FROM for HOST goes to its neighbour TO
//   flow SOURCE DESTINATION BYTES  0 bytes: until the end
//   end VIRTUAL_SECONDS            at the latest
//
// A port is a queue disc over a device that holds one packet: at switches RED on the instantaneous queue, a step that marks
// CE; at hosts, which never mark, a FIFO. A hop is a packet that a device has begun to send.
#include <ns3/applications-module.h>
#include <ns3/core-module.h>
#include <ns3/internet-module.h>
#include <ns3/network-module.h>
#include <ns3/point-to-point-module.h>
#include <ns3/traffic-control-module.h>

#include <chrono>
#include <ctime>
#include <iomanip>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

using namespace ns3;

namespace {

constexpr uint16_t kFirstPort = 5000;
const Time kLookEvery = MicroSeconds(100); // whether all flows have arrived: few events beside those of the packets

struct Port {
    Ptr<PointToPointNetDevice> device;
    Ptr<QueueDisc> queue;
    uint32_t interface;
    Ipv4Address address;
};

// Paths by input port and destination, as OpenFlow rules give them: one lookup, and a route made beforehand.
class PortRouting : public Ipv4RoutingProtocol {
  public:
    void SetUplink(Ptr<Ipv4Route> route) { m_uplink = route; }
    void Add(uint32_t interface, Ipv4Address host, Ptr<Ipv4Route> route) { m_routes[{interface, host.Get()}] = route; }

    Ptr<Ipv4Route> RouteOutput(Ptr<Packet>, const Ipv4Header&, Ptr<NetDevice>, Socket::SocketErrno& error) override {
        error = m_uplink ? Socket::ERROR_NOTERROR : Socket::ERROR_NOROUTETOHOST;
        return m_uplink;
    }
    // Old versions of ns-3 hand callbacks over by value, new ones by reference: one of these two overrides.
    bool RouteInput(Ptr<const Packet> packet, const Ipv4Header& header, Ptr<const NetDevice> device, UnicastForwardCallback forward,
                    MulticastForwardCallback, LocalDeliverCallback deliver, ErrorCallback fail) {
        return Route(packet, header, device, forward, deliver, fail);
    }
    bool RouteInput(Ptr<const Packet> packet, const Ipv4Header& header, Ptr<const NetDevice> device,
                    const UnicastForwardCallback& forward, const MulticastForwardCallback&, const LocalDeliverCallback& deliver,
                    const ErrorCallback& fail) {
        return Route(packet, header, device, forward, deliver, fail);
    }
    void SetIpv4(Ptr<Ipv4> ipv4) override { m_ipv4 = ipv4; }
    void NotifyInterfaceUp(uint32_t) override {}
    void NotifyInterfaceDown(uint32_t) override {}
    void NotifyAddAddress(uint32_t, Ipv4InterfaceAddress) override {}
    void NotifyRemoveAddress(uint32_t, Ipv4InterfaceAddress) override {}
    void PrintRoutingTable(Ptr<OutputStreamWrapper>, Time::Unit) const override {}

  private:
    bool Route(Ptr<const Packet> packet, const Ipv4Header& header, Ptr<const NetDevice> device,
               const UnicastForwardCallback& forward, const LocalDeliverCallback& deliver, const ErrorCallback& fail) {
        uint32_t interface = m_ipv4->GetInterfaceForDevice(device);
        if (m_ipv4->IsDestinationAddress(header.GetDestination(), interface)) {
            deliver(packet, header, interface);
            return true;
        }
        auto found = m_routes.find({interface, header.GetDestination().Get()});
        if (found == m_routes.end()) {
            fail(packet, header, Socket::ERROR_NOROUTETOHOST);
            return false;
        }
        forward(found->second, packet, header);
        return true;
    }
    Ptr<Ipv4> m_ipv4;
    Ptr<Ipv4Route> m_uplink;
    std::map<std::pair<uint32_t, uint32_t>, Ptr<Ipv4Route>> m_routes;
};

class PortRoutingHelper : public Ipv4RoutingHelper {
  public:
    PortRoutingHelper* Copy() const override { return new PortRoutingHelper(*this); }
    Ptr<Ipv4RoutingProtocol> Create(Ptr<Node>) const override { return CreateObject<PortRouting>(); }
};

class Network {
  public:
    void Read(std::istream& input);
    void Run();

  private:
    void Begin(std::istream& input);
    void AddLink(std::istream& input);
    void AddRoute(std::istream& input);
    void AddFlow(std::istream& input);
    void StopWhenDone();
    Ptr<PortRouting> Routing(uint32_t node) {
        return DynamicCast<PortRouting>(m_nodes.Get(node)->GetObject<Ipv4>()->GetRoutingProtocol());
    }
    Ptr<Ipv4Route> RouteTo(uint32_t node, uint32_t neighbour);
    Port& PortOf(uint32_t node, uint32_t neighbour);
    Port& PortOf(uint32_t host) { return m_ports.lower_bound({host, 0})->second; }

    uint32_t m_hosts = 0, m_mtuBytes = 0, m_segmentBytes = 0;
    std::string m_queue;
    double m_endS = 0;
    NodeContainer m_nodes;
    std::map<std::pair<uint32_t, uint32_t>, Port> m_ports; // by node and neighbour
    std::vector<std::pair<Ptr<PacketSink>, uint64_t>> m_sinks;
    Ipv4AddressHelper m_addresses{"10.0.0.0", "255.255.255.252"};
};

void Network::Read(std::istream& input) {
    for (std::string item; input >> item;) {
        if (item == "network") {
            Begin(input);
        } else if (item == "link") {
            AddLink(input);
        } else if (item == "route") {
            AddRoute(input);
        } else if (item == "flow") {
            AddFlow(input);
        } else if (item == "end") {
            input >> m_endS;
        } else {
            NS_FATAL_ERROR("no such item: " << item);
        }
        if (!input) {
            NS_FATAL_ERROR("the item " << item << " is not complete");
        }
    }
}

void Network::Begin(std::istream& input) {
    uint32_t switches, bufferBytes, queuePackets, markPackets;
    input >> m_hosts >> switches >> m_mtuBytes >> m_segmentBytes >> bufferBytes >> queuePackets >> markPackets;
    m_queue = std::to_string(queuePackets) + "p";

    Config::SetDefault("ns3::TcpL4Protocol::SocketType", StringValue("ns3::TcpDctcp"));
    Config::SetDefault("ns3::TcpSocketBase::UseEcn", StringValue("On"));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200)));
    Config::SetDefault("ns3::TcpSocketBase::ClockGranularity", TimeValue(MilliSeconds(1)));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(m_segmentBytes));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(2));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(bufferBytes));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(bufferBytes));
    Config::SetDefault("ns3::RedQueueDisc::UseEcn", BooleanValue(true));
    Config::SetDefault("ns3::RedQueueDisc::UseHardDrop", BooleanValue(false));
    Config::SetDefault("ns3::RedQueueDisc::Gentle", BooleanValue(false)); // else a ramp above the step
    Config::SetDefault("ns3::RedQueueDisc::QW", DoubleValue(1.0));        // the queue as it is, not its average
    Config::SetDefault("ns3::RedQueueDisc::MinTh", DoubleValue(markPackets));
    Config::SetDefault("ns3::RedQueueDisc::MaxTh", DoubleValue(markPackets));
    Config::SetDefault("ns3::RedQueueDisc::MeanPktSize", UintegerValue(m_mtuBytes));

    m_nodes.Create(m_hosts + switches);
    InternetStackHelper stack;
    stack.SetRoutingHelper(PortRoutingHelper());
    stack.SetIpv6StackInstall(false);
    stack.Install(m_nodes);
}

void Network::AddLink(std::istream& input) {
    uint32_t ends[2];
    uint64_t rateBps, delayNs;
    input >> ends[0] >> ends[1] >> rateBps >> delayNs;
    Config::SetDefault("ns3::RedQueueDisc::LinkBandwidth", DataRateValue(DataRate(rateBps)));
    Config::SetDefault("ns3::RedQueueDisc::LinkDelay", TimeValue(NanoSeconds(delayNs)));
    PointToPointHelper cable;
    cable.SetDeviceAttribute("DataRate", DataRateValue(DataRate(rateBps)));
    cable.SetDeviceAttribute("Mtu", UintegerValue(m_mtuBytes));
    cable.SetChannelAttribute("Delay", TimeValue(NanoSeconds(delayNs)));
    cable.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1p"));
    NetDeviceContainer devices = cable.Install(m_nodes.Get(ends[0]), m_nodes.Get(ends[1]));
    Port* ports[2];
    for (int side = 0; side < 2; side++) {
        TrafficControlHelper queueing;
        bool host = ends[side] < m_hosts;
        queueing.SetRootQueueDisc(host ? "ns3::FifoQueueDisc" : "ns3::RedQueueDisc", "MaxSize", StringValue(m_queue));
        QueueDiscContainer queues = queueing.Install(devices.Get(side));
        ports[side] = &m_ports[{ends[side], ends[1 - side]}];
        *ports[side] = {DynamicCast<PointToPointNetDevice>(devices.Get(side)), queues.Get(0), 0, {}};
    }
    Ipv4InterfaceContainer interfaces = m_addresses.Assign(devices);
    m_addresses.NewNetwork();
    for (int side = 0; side < 2; side++) {
        ports[side]->interface = interfaces.Get(side).second;
        ports[side]->address = interfaces.GetAddress(side);
    }
    if (ends[0] < m_hosts) {
        Routing(ends[0])->SetUplink(RouteTo(ends[0], ends[1]));
    }
    if (ends[1] < m_hosts) {
        Routing(ends[1])->SetUplink(RouteTo(ends[1], ends[0]));
    }
}

Port& Network::PortOf(uint32_t node, uint32_t neighbour) {
    auto found = m_ports.find({node, neighbour});
    if (found == m_ports.end()) {
        NS_FATAL_ERROR("no link between " << node << " and " << neighbour);
    }
    return found->second;
}

Ptr<Ipv4Route> Network::RouteTo(uint32_t node, uint32_t neighbour) {
    Ptr<Ipv4Route> route = Create<Ipv4Route>();
    route->SetSource(PortOf(node, neighbour).address);
    route->SetGateway(PortOf(neighbour, node).address);
    route->SetOutputDevice(PortOf(node, neighbour).device);
    return route;
}

void Network::AddRoute(std::istream& input) {
    uint32_t node, from, host, to;
    input >> node >> from >> host >> to;
    Routing(node)->Add(PortOf(node, from).interface, PortOf(host).address, RouteTo(node, to));
}

void Network::AddFlow(std::istream& input) {
    uint32_t source, destination;
    uint64_t bytes;
    input >> source >> destination >> bytes;
    uint16_t number = kFirstPort + m_sinks.size();
    PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), number));
    ApplicationContainer sinks = sink.Install(m_nodes.Get(destination));
    BulkSendHelper sender("ns3::TcpSocketFactory", InetSocketAddress(PortOf(destination).address, number));
    sender.SetAttribute("MaxBytes", UintegerValue(bytes));
    sender.SetAttribute("SendSize", UintegerValue(m_segmentBytes));
    sender.Install(m_nodes.Get(source));
    m_sinks.emplace_back(DynamicCast<PacketSink>(sinks.Get(0)), bytes);
}

void Network::StopWhenDone() {
    for (auto& [sink, bytes] : m_sinks) {
        if (bytes == 0 || sink->GetTotalRx() < bytes) {
            Simulator::Schedule(kLookEvery, &Network::StopWhenDone, this);
            return;
        }
    }
    Simulator::Stop();
}

double CpuS() {
    timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

void Network::Run() {
    Simulator::Stop(Seconds(m_endS));
    Simulator::Schedule(kLookEvery, &Network::StopWhenDone, this);
    auto begin = std::chrono::steady_clock::now();
    double cpuS = CpuS();
    Simulator::Run();
    cpuS = CpuS() - cpuS;
    double wallS = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

    uint64_t hops = 0, marks = 0, drops = 0, received = 0;
    for (auto& [ends, port] : m_ports) {
        Ptr<Queue<Packet>> waiting = port.device->GetQueue();
        hops += waiting->GetTotalReceivedPackets() - waiting->GetNPackets();
        marks += port.queue->GetStats().nTotalMarkedPackets;
        drops += port.queue->GetStats().nTotalDroppedPackets + waiting->GetTotalDroppedPackets();
    }
    for (auto& [sink, bytes] : m_sinks) {
        received += sink->GetTotalRx();
    }
    std::cout << std::setprecision(9) << "{\"hops\": " << hops << ", \"wall_s\": " << wallS << ", \"cpu_s\": " << cpuS
              << ", \"virtual_s\": " << Simulator::Now().GetSeconds() << ", \"events\": " << Simulator::GetEventCount()
              << ", \"marks\": " << marks << ", \"drops\": " << drops << ", \"received_bytes\": " << received << "}\n";
    Simulator::Destroy();
}

} // namespace

int main() {
    Network network;
    network.Read(std::cin);
    network.Run();
}
