package dedup
import ("testing";"os";"fmt")
func TestDbg(t *testing.T){
  data,_:=os.ReadFile("/tmp/codec-data/src.tar")
	e:=newEnds(128<<20)
	e.leg(t).sendAll(t,data,fixed(1<<20))
	d:=edit(1,data,len(data)/20000)
	l:=e.leg(t); nops:=0; small:=0; k:=0
	for len(d)>0 { n:=min(1<<20,len(d)); l.send(t,d[:n]); 
	 for _,o:=range l.enc.match.ops { nops++; if o.n<200 {small++}; if k<60 {k++; fmt.Printf("lit %d n %d\n",o.lit,o.n)} }
	 d=d[n:]}
	t.Logf("ops %d small %d wire %d %+v",nops,small,l.wire,l.enc.Counters())
}
