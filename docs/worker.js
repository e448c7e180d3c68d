// The theme's search runs in a Worker, which browsers refuse to a page opened from the disk. There a
// hidden frame of the same page runs the worker's script, with the same messages.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.inside = frame.contentWindow
      this.inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      const script = this.inside.document.createElement("script")
      script.src = url
      script.onload = () => {
        for (const data of this.waiting) this.pass(data)
        this.waiting = undefined
      }
      this.inside.document.body.append(script)
    }
    pass(data) {
      this.inside.dispatchEvent(new MessageEvent("message", { data }))
    }
    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else this.pass(data)
    }
  }
}
