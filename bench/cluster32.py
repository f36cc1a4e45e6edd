"""The platform of the protocol benches: 32 hosts of one cluster, and a master in another."""

HOSTS = 32

PLATFORM = f"""<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
 <zone id="world" routing="Full">
  <cluster id="c" prefix="n" suffix="" radical="0-{HOSTS - 1}" speed="1Gf" bw="125MBps" lat="50us" bb_bw="2.25GBps"
           bb_lat="500us"/>
  <cluster id="m" prefix="master_host" suffix="" radical="0-0" speed="1Gf" bw="125MBps" lat="50us" bb_bw="2.25GBps"
           bb_lat="500us"><prop id="role" value="master"/></cluster>
  <link id="l" bandwidth="1.25GBps" latency="500us"/>
  <zoneRoute src="c" dst="m" gw_src="nc_router" gw_dst="master_hostm_router"><link_ctn id="l"/></zoneRoute>
 </zone>
</platform>
"""
