/*
 * The search of a page that was opened from a folder. Browsers start no Worker for `file:`, so its code runs in a hidden
 * frame, behind the interface of a Worker. The theme would load a script for this from elsewhere. Its search looks for the
 * name `IFrameWorker`, and then takes the address of its files from the frame.
 */
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = null;
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.waiting = [];
      window.addEventListener("message", (event) => {
        if (event.source !== this.frame.contentWindow) return;
        const message = new MessageEvent("message", { data: event.data });
        if (this.onmessage) this.onmessage(message);
        this.dispatchEvent(message);
      });
      document.body.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      inside.document.open();
      inside.document.write(
        "<!DOCTYPE html><script>postMessage = (data) => parent.postMessage(data, '*');" +
          "importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((loaded, failed) => {" +
          "const script = document.createElement('script'); script.src = url; script.onload = loaded;" +
          "script.onerror = failed; document.body.appendChild(script); })), Promise.resolve());<\/script>" +
          `<body><script src="${url}"><\/script>`,
      );
      inside.document.close();
      inside.addEventListener("load", () => {
        for (const data of this.waiting) this.deliver(data);
        this.waiting = null;
      });
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.deliver(data);
    }

    deliver(data) {
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
